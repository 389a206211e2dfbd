/* Integer products by AMX: tiles of 16 rows by 64 codes, multiplied with tiles of 16 outputs by 64 weights. Packed panels
   and rows of codes are such tiles already, one after another: nothing has to be rearranged. */

#define _GNU_SOURCE

#include "product.h"

#if defined(__AMX_INT8__) && defined(__linux__) && defined(__x86_64__)

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    TILE_BYTES = 64,            /* of a tile's row: 64 codes of a row, or 4 weights of 16 outputs */
    TILE_FOURS = 16,
    PANEL_ROW = PANEL * FOUR,   /* bytes from four inputs of a panel to the next four */
    FEWEST_ROWS = DOT_ROWS + 1  /* fewer wait for weights, whichever way they are multiplied */
};

/* --- asking for the unit ------------------------------------------------------------------------------------------ */

static int granted;
static pthread_once_t asked = PTHREAD_ONCE_INIT;

/* Linux gives a process the unit's registers, which are large, only if asked to; it may say no. */
static void ask(void) {
    const long request = 0x1023, tile_data = 18;   /* ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA */
    granted = !syscall(SYS_arch_prctl, request, tile_data);
}

int suits_tiles(const product *p) {
    if (p->rows < FEWEST_ROWS || p->weights->precision != 8 || p->weights->fours % TILE_FOURS) return 0;
    pthread_once(&asked, ask);
    return granted;
}

/* --- one panel ---------------------------------------------------------------------------------------------------- */

typedef struct {
    uint8_t palette, start, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
} configuration;

static void fetch_ahead(const int8_t *weight) {
    for (int line = 0; line < TILE_FOURS * PANEL_ROW; line += 64) __builtin_prefetch(weight + AHEAD + line, 0, 3);
}

/* Registers of the unit have numbers: 0 to 3 hold sums, 4 and 5 rows of codes, 6 and 7 weights. */
static void sum_16_rows(const product *p, const int8_t *weight, const uint8_t *code, int32_t (*sums)[PANEL]) {
    _tile_zero(0);
    _tile_zero(1);
    for (int64_t four = 0; four < p->weights->fours; four += TILE_FOURS, weight += TILE_FOURS * PANEL_ROW) {
        fetch_ahead(weight);
        _tile_loadd(4, code + four * FOUR, p->code_bytes);
        _tile_loadd(6, weight, PANEL_ROW);
        _tile_loadd(7, weight + TILE_BYTES, PANEL_ROW);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
    }
    _tile_stored(0, sums[0], sizeof sums[0]);
    _tile_stored(1, sums[0] + LANES, sizeof sums[0]);
}

static void sum_32_rows(const product *p, const int8_t *weight, const uint8_t *code, int32_t (*sums)[PANEL]) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t four = 0; four < p->weights->fours; four += TILE_FOURS, weight += TILE_FOURS * PANEL_ROW) {
        fetch_ahead(weight);
        _tile_loadd(4, code + four * FOUR, p->code_bytes);
        _tile_loadd(5, code + four * FOUR + AMX_ROWS * p->code_bytes, p->code_bytes);
        _tile_loadd(6, weight, PANEL_ROW);
        _tile_loadd(7, weight + TILE_BYTES, PANEL_ROW);
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    _tile_stored(0, sums[0], sizeof sums[0]);
    _tile_stored(1, sums[0] + LANES, sizeof sums[0]);
    _tile_stored(2, sums[AMX_ROWS], sizeof sums[0]);
    _tile_stored(3, sums[AMX_ROWS] + LANES, sizeof sums[0]);
}

static void do_panel(const product *p, int64_t panel) {
    _Alignas(64) int32_t sums[2 * AMX_ROWS][PANEL];
    const int8_t *weight = p->weights->panel + panel * p->weights->panel_bytes;
    for (int64_t row = 0; row < p->rows; row += 2 * AMX_ROWS) {
        const uint8_t *code = p->codes + row * p->code_bytes;
        const int64_t left = p->rows - row, rows = left < 2 * AMX_ROWS ? left : 2 * AMX_ROWS;
        if (rows > AMX_ROWS) sum_32_rows(p, weight, code, sums);
        else sum_16_rows(p, weight, code, sums);
        for (int64_t r = 0; r < rows; r++)
            for (int v = 0; v < PANEL_VECTORS; v++) {
                int64_t output = panel * PANEL + v * LANES;
                whole_lanes found;
                memcpy(&found, sums[r] + v * LANES, sizeof found);
                write_row(p, row + r, output, from_sums(p, row + r, output, found));
                if (v + 1 == PANEL_VECTORS) note_largest(p, row + r, panel);
            }
    }
}

/* The unit belongs to all who compute in this thread: they find it as they left it. */
void do_panels_by_tiles(const product *p, int64_t panel, int64_t last) {
    configuration ours = {.palette = 1}, before;
    for (int tile = 0; tile < 8; tile++) {
        ours.bytes[tile] = TILE_BYTES;
        ours.rows[tile] = AMX_ROWS;
    }
    _tile_storeconfig(&before);
    __asm__ volatile("" :: "r"(&ours), "r"(&before) : "memory");   /* some compilers think that only a pointer's bytes are read */
    _tile_loadconfig(&ours);
    for (; panel < last; panel++) do_panel(p, panel);
    if (before.palette) _tile_loadconfig(&before);
    else _tile_release();
}

#else

int suits_tiles(const product *p) {
    (void)p;
    return 0;
}

void do_panels_by_tiles(const product *p, int64_t panel, int64_t last) {
    (void)p;
    (void)panel;
    (void)last;
}

#endif

// The replay's clock and its controls. A position is seconds of decoding, or iterations; a moment is one at which some
// lane has written something. Lanes are only told where the clock stands.

const PACES = [0, 4, 8, 15, 30, 60];
const USUAL = 8;
const find = (id) => document.getElementById(id);

export function spoken(seconds) {
  return seconds < 1 ? `${(1000 * seconds).toFixed(1)} ms` : `${seconds.toFixed(2)} s`;
}

function paceOf(slower) {
  if (Math.abs(Math.log(slower)) < 0.05) return "real time";
  const times = Math.max(slower, 1 / slower);
  return `${times.toFixed(times < 10 ? 1 : 0)}× ${slower > 1 ? "slower" : "faster"}`;
}

export class Player {
  constructor(show) {
    this.show = show;
    this.lanes = [];
    this.position = 0;
    this.frame = 0;
    for (const seconds of PACES) find("pace").append(new Option(seconds ? `${seconds} s` : "real time", seconds));
    find("pace").value = USUAL;
    find("play").addEventListener("click", () => (this.frame ? this.pause() : this.play()));
    find("first").addEventListener("click", () => this.step(-Infinity));
    find("back").addEventListener("click", () => this.step(-1));
    find("forward").addEventListener("click", () => this.step(1));
    find("moment").addEventListener("input", (event) => this.to(Number(event.target.value)));
    find("order").addEventListener("change", () => this.lineUp());
    find("pace").addEventListener("change", () => this.draw());
  }

  get byTime() {
    return find("order").value === "time";
  }

  // New lanes, each a list of seconds at which its iterations were over.
  load(lanes) {
    this.pause();
    this.lanes = lanes;
    this.lineUp();
  }

  // The moments of all lanes; the replay stays at about the same part of the race.
  lineUp() {
    const share = this.total ? this.position / this.total : 0;
    const ends = this.lanes.map((seconds) => (this.byTime ? seconds : seconds.map((_, place) => place + 1)));
    this.moments = [...new Set(ends.flat())].sort((a, b) => a - b);
    this.total = this.moments.at(-1) ?? 0;
    this.position = share * this.total;
    find("moment").max = this.moments.length;
    find("pace").options[0].disabled = !this.byTime;
    if (!this.byTime && find("pace").value === "0") find("pace").value = USUAL;
    this.draw();
  }

  // Of the race per second of the replay.
  get rate() {
    return this.total / (Number(find("pace").value) || this.total || 1);
  }

  get passed() {
    return this.moments.filter((moment) => moment <= this.position + 1e-9).length;
  }

  to(count) {
    this.pause();
    this.position = count ? this.moments[count - 1] : 0;
    this.draw();
  }

  step(by) {
    this.to(Math.min(this.moments.length, Math.max(0, this.passed + by)));
  }

  end() {
    this.to(this.moments.length);
  }

  play() {
    if (this.position >= this.total) this.position = 0;
    let before = performance.now();
    const tick = (now) => {
      this.position = Math.min(this.total, this.position + (this.rate * Math.max(0, now - before)) / 1000);
      before = now;
      if (this.position >= this.total) this.pause();
      else this.frame = requestAnimationFrame(tick);
      this.draw();
    };
    this.frame = requestAnimationFrame(tick);
    this.draw();
  }

  pause() {
    cancelAnimationFrame(this.frame);
    this.frame = 0;
    find("play").setAttribute("aria-label", "Play");
  }

  draw() {
    if (!this.moments) return;
    const { passed } = this;
    find("moment").value = passed;
    if (this.frame) find("play").setAttribute("aria-label", "Pause");
    const slower = 1 / this.rate;
    const at = this.byTime ? spoken(this.position) : `iteration ${Math.floor(this.position + 1e-9)}`;
    const pace = this.byTime ? paceOf(slower) : "";
    find("clock").replaceChildren(at, ...(pace ? [Object.assign(document.createElement("small"), { textContent: pace })] : []));
    find("moment").setAttribute("aria-valuetext", `${at}, step ${passed} of ${this.moments.length}`);
    this.show(this.position, this.byTime, this.total);
  }
}

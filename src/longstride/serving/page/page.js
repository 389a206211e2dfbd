// The page: the form, the link to share, and a race from the first request to the replay.

import { Lane } from "./lane.js";
import { Player, spoken } from "./player.js";
import { Failure, decoded, settings } from "./server.js";

const USUAL = ["greedy", "blockwise", "draft-verify", "interleaved", "lattice"];
const MOST_USUAL = 5;
const RUNS = 3;
const PATIENCE = 1000; // milliseconds after which a lane's runs are enough
const find = (id) => document.getElementById(id);
const calm = matchMedia("(prefers-reduced-motion: reduce)");

let server = { models: [] };
let lanes = []; // of the race that is shown
let running = null; // stops the race that is being decoded
let outcome = ""; // in a sentence, told when the replay has shown it
const player = new Player(show);

const model = () => server.models.find((one) => one.name === find("model").value);
const chosen = () => [...find("decoders").querySelectorAll("input:checked")].map((box) => box.value);

function show(position, byTime, total) {
  for (const lane of lanes) lane.show(position, byTime, total);
  if (lanes.length && position >= total && find("status").textContent !== outcome) find("status").textContent = outcome;
}

function complain(sentence) {
  find("error").textContent = sentence;
}

// --- the form ---------------------------------------------------------------------------------------------------------

function offerDecoders(wanted) {
  const names = model().decoders.map((decoder) => decoder.name);
  const known = wanted.filter((name) => names.includes(name));
  const usual = USUAL.filter((name) => names.includes(name));
  const checked = new Set(known.length ? known : usual.length > 1 ? usual : names.slice(0, MOST_USUAL));
  find("decoders").replaceChildren(
    ...model().decoders.map(({ name, summary }) => {
      const chip = find("chip").content.firstElementChild.cloneNode(true);
      chip.title = summary;
      chip.querySelector("span").textContent = name;
      Object.assign(chip.querySelector("input"), { value: name, checked: checked.has(name) });
      return chip;
    }),
  );
  const { source, target, examples } = model();
  find("languages").textContent = `${source.name} to ${target.name}, read as one sentence`;
  find("text").lang = source.code;
  find("example").hidden = !examples.length;
}

function nextExample() {
  const { examples } = model();
  if (!examples.length) return;
  const place = Math.max(0, examples.indexOf(find("text").value));
  find("text").value = examples.at(place - 1); // the last one, which tends to be the longest, comes first
  grow();
}

// Where the browser does not let the box grow by itself.
function grow() {
  const box = find("text");
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

// --- the link ---------------------------------------------------------------------------------------------------------

function address() {
  const said = new URLSearchParams({ text: find("text").value, decoders: chosen().join(",") });
  if (server.models.length > 1) said.set("model", model().name);
  return `${location.href.split("#")[0]}#${String(said).replaceAll("%2C", ",")}`;
}

function readAddress() {
  const said = new URLSearchParams(location.hash.slice(1));
  const named = server.models.find((one) => one.name === said.get("model")) ?? server.models[0];
  find("model").value = named.name;
  find("text").value = said.get("text") ?? find("text").value;
  const wanted = (said.get("decoders") ?? "").split(",").filter(Boolean);
  offerDecoders(wanted);
  const missing = wanted.filter((name) => !model().decoders.some((one) => one.name === name));
  complain(missing.length ? `The model ${named.name} has no decoder ${missing.join(", ")}.` : "");
  if (!find("text").value) nextExample();
  grow();
}

async function share() {
  history.replaceState(null, "", address());
  find("address").value = location.href;
  find("link").hidden = false;
  find("address").select();
  try {
    await navigator.clipboard.writeText(location.href);
    find("status").textContent = "The link is copied.";
  } catch {
    find("status").textContent = "Here is the link; the browser did not let it be copied.";
  }
}

// --- the race ---------------------------------------------------------------------------------------------------------

async function race() {
  const asked = { text: find("text").value.trim(), model: model().name, key: find("key").value };
  const names = chosen();
  complain("");
  find("link").hidden = true;
  if (!asked.text) return refuse("Type a text first.", find("text"));
  if (!names.length) return refuse("Choose a decoder first.", find("decoders").querySelector("input"));
  history.replaceState(null, "", address());
  const offered = model();
  const entered = names.map((name) => new Lane(offered.decoders.find((one) => one.name === name), offered.target.code));
  find("lanes").replaceChildren(...entered.map((lane) => lane.root));
  find("race").hidden = false;
  find("player").hidden = true;
  lanes = [];
  player.load([]);
  begin();
  try {
    await decodeAll(entered, asked, running.signal);
    present(entered.filter((lane) => lane.steps));
  } catch (error) {
    find("race").hidden = true;
    find("status").textContent = error.name === "AbortError" ? "Stopped." : "";
    if (error instanceof Failure) complain(error.message);
    else if (error.name !== "AbortError") throw error;
  } finally {
    running = null;
    find("go").textContent = "Race";
  }
}

function refuse(sentence, where) {
  complain(sentence);
  where.focus();
}

function begin() {
  running = new AbortController();
  find("go").textContent = "Stop";
}

// The quickest of a few runs; the first one is a warm-up, in which the server may have weights to read and plans to make.
async function quickest(lane, asked, signal) {
  lane.say("warms up");
  await decoded(asked, signal);
  const begun = performance.now();
  let best;
  for (let run = 1; run <= RUNS && (!best || performance.now() - begun < PATIENCE); run++) {
    const found = await decoded(asked, signal, ({ step }) => lane.say(`run ${run}, iteration ${step}`));
    if (!best || seconds(found) < seconds(best)) best = found;
  }
  return best;
}

const seconds = (event) => event.trace.steps.at(-1)?.decoding_seconds ?? 0;

// One lane after another: side by side they would share the server's cores.
async function decodeAll(entered, asked, signal) {
  const failures = [];
  for (const [place, lane] of entered.entries()) {
    find("status").textContent = `Decoding with ${lane.name}, ${place + 1} of ${entered.length}.`;
    lane.root.classList.add("busy");
    try {
      lane.finish(await quickest(lane, { ...asked, decoder: lane.name }, signal));
      lane.say(`decoded in ${spoken(lane.total)}`);
    } catch (error) {
      // What one decoder cannot do, another may; all else stops the race.
      if (!(error instanceof Failure) || ![400, 500].includes(error.status)) throw error;
      failures.push(error);
      lane.say(error.message, true);
    } finally {
      lane.root.classList.remove("busy");
    }
  }
  if (failures.length === entered.length) throw failures[0];
}

function present(done) {
  lanes = done;
  const byTime = [...done].sort((one, other) => one.total - other.total);
  const greedy = done.find((lane) => lane.name === "greedy");
  byTime.forEach((lane, place) => lane.compare(place + 1, greedy));
  find("player").hidden = false;
  player.load(done.map((lane) => lane.seconds));
  mark();
  const [first] = byTime;
  const compared = greedy && greedy !== first ? `; greedy took ${spoken(greedy.total)}` : "";
  const rate = (first.committed / first.steps.length).toFixed(2);
  outcome =
    done.length > 1
      ? `${first.name} was first: ${spoken(first.total)} at ${rate} tokens per iteration${compared}.`
      : `${first.name} took ${spoken(first.total)} at ${rate} tokens per iteration.`;
  find("status").textContent = "All is decoded; the replay begins.";
  find("race").scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
  if (calm.matches) player.end();
  else player.play();
}

function mark() {
  const tallest = Math.max(1, ...lanes.flatMap((lane) => lane.steps.map((step) => step.positions.length)));
  for (const lane of lanes) lane.mark(player.byTime, player.total, tallest);
}

// --- begin ------------------------------------------------------------------------------------------------------------

find("form").addEventListener("submit", (event) => {
  event.preventDefault();
  if (running) running.abort();
  else race();
});
find("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey) && !running) race();
});
find("text").addEventListener("input", grow);
find("example").addEventListener("click", nextExample);
find("share").addEventListener("click", share);
find("model").addEventListener("change", () => offerDecoders(chosen()));
find("order").addEventListener("change", mark);
addEventListener("hashchange", readAddress);

try {
  server = await settings();
  find("model").append(...server.models.map((one) => new Option(one.name)));
  find("model-field").hidden = server.models.length < 2;
  find("key-field").hidden = !server.key_required;
  find("more").hidden = server.models.length < 2 && !server.key_required;
  readAddress();
  find("go").disabled = false;
} catch (error) {
  complain(error instanceof Failure ? error.message : "The page could not be made ready; load it again.");
  if (!(error instanceof Failure)) throw error;
}

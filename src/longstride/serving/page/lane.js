// One decoder's lane: what it wrote up to where the replay's clock stands, with its figures.

import { spoken } from "./player.js";
import { draftOf, element, inOrder, outputAfter, writtenBy } from "./tokens.js";

const AHEAD = 0.5; // of an iteration has gone by when its draft is shown; when it was ready is not measured
const ORDINALS = new Intl.PluralRules("en", { type: "ordinal" });
const SUFFIXES = { one: "st", two: "nd", few: "rd", other: "th" };

const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export class Lane {
  constructor({ name, summary }, language) {
    this.name = name;
    this.root = document.getElementById("lane").content.firstElementChild.cloneNode(true);
    this.root.dataset.decoder = name;
    const title = this.find("h3");
    title.textContent = name;
    title.id = `lane-${name}`;
    this.root.setAttribute("aria-labelledby", title.id);
    this.find(".summary").textContent = summary;
    this.find("summary .hidden").textContent = ` of ${name}`;
    this.find(".table").setAttribute("aria-label", `Every iteration of ${name}`);
    for (const part of [".tokens", ".reserve", ".table"]) this.find(part).lang = language;
    this.find("details").addEventListener("toggle", () => this.tell());
    this.say("waits for its turn");
  }

  find(selector) {
    return this.root.querySelector(selector);
  }

  say(sentence, wrong = false) {
    this.find(".caption").textContent = sentence;
    this.find(".caption").classList.toggle("error", wrong);
    this.root.classList.toggle("failed", wrong);
  }

  finish(event) {
    const { steps, eos, committed, drafted, accepted } = event.trace;
    Object.assign(this, { steps, eos, drafted, text: event.text, committed, accepted, beside: event.beside });
    this.seconds = steps.map((step) => step.decoding_seconds);
    this.total = this.seconds.at(-1) ?? 0;
    this.scattered = !steps.every(inOrder);
    this.shown = undefined;
    this.find(".reserve").textContent = `${event.text} ${steps.length > 1 ? "…" : ""}`;
    this.find(".of-drafts").hidden = !drafted;
    this.find("details").hidden = false;
    this.say("");
  }

  // How it did beside the others: its place, and how it compares with greedy.
  compare(place, greedy) {
    this.place = `${place}${SUFFIXES[ORDINALS.select(place)]}`;
    this.against = "";
    if (greedy && greedy !== this) {
      const times = greedy.total / this.total;
      const speed = times >= 1 ? `${times.toFixed(1)}× as fast as greedy` : `${(1 / times).toFixed(1)}× as long as greedy`;
      this.against = `${speed}, ${this.text === greedy.text ? "✓\u00a0the same text" : "≠\u00a0another text"}`;
    }
  }

  // Marks of iterations on the track, over `total` seconds or iterations.
  mark(byTime, total, tallest) {
    const ends = this.ends(byTime);
    const bars = this.steps.map((step, place) => {
      const height = step.positions.length ? 3 + 15 * Math.sqrt(step.positions.length / tallest) : 1.5;
      return `M${((1000 * ends[place]) / total).toFixed(1)} 19V${(19 - height).toFixed(1)}`;
    });
    this.find(".marks").setAttribute("d", bars.join(""));
    this.find(".end").setAttribute("d", `M${((1000 * (ends.at(-1) ?? 0)) / total).toFixed(1)} 20V0`);
  }

  ends(byTime) {
    return byTime ? this.seconds : this.seconds.map((_, place) => place + 1);
  }

  show(position, byTime, total) {
    const ends = this.ends(byTime);
    const count = ends.filter((end) => end <= position + 1e-9).length;
    const begun = count ? ends[count - 1] : 0;
    const next = count < ends.length && position - begun > AHEAD * (ends[count] - begun) && this.steps[count].draft.length > 0;
    const done = count === ends.length;
    this.find(".gone").setAttribute("width", (1000 * Math.min(position, ends.at(-1) ?? 0)) / (total || 1));
    const seconds = byTime ? Math.min(position, this.total) : count ? this.seconds[count - 1] : 0;
    this.find(".time").textContent = spoken(seconds);
    const now = `${count} ${next}`;
    if (now === this.shown) return;
    this.shown = now;
    this.root.classList.toggle("done", done);
    this.find(".tokens").replaceChildren(...outputAfter(this.steps, count, this.eos, next));
    const passed = this.steps.slice(0, count);
    const sum = (of) => passed.reduce((all, step) => all + of(step), 0);
    this.find(".rate").textContent = count ? (sum((step) => step.positions.length) / count).toFixed(2) : "–";
    this.find(".iterations").textContent = count;
    this.find(".stood-of").textContent = `${sum((step) => step.accepted)} of ${sum((step) => step.drafted)}`;
    this.find(".place").textContent = done ? this.place : "";
    this.find(".against").textContent = done ? this.against : "";
    this.say(done ? this.remark : this.captionOf(count, next));
  }

  captionOf(count, next) {
    if (next) return `Iteration ${count + 1}: ${plural(this.steps[count].drafted, "token")} drafted`;
    if (!count) return "Iteration 1 is under way";
    const { drafted, accepted, positions } = this.steps[count - 1];
    const verdict = drafted ? `${drafted} drafted, ${accepted} stood, ` : "";
    const written = positions.length ? `${positions.length} written` : "weighs hypotheses, nothing is final yet";
    return `Iteration ${count}: ${verdict}${written}`;
  }

  get remark() {
    const shared = `; the server had ${plural(this.beside, "other sentence")} meanwhile, so this time is shared`;
    return `Done: ${plural(this.committed, "token")}${this.beside ? shared : ""}.`;
  }

  // The table of iterations, made when it is first opened.
  tell() {
    const box = this.find(".table");
    if (box.childNodes.length || !this.steps) return;
    const table = element("table");
    const head = table.createTHead().insertRow();
    for (const name of ["", "at", ...(this.drafted ? ["drafted", "stood"] : []), this.scattered ? "written, with places" : "written"]) {
      head.append(Object.assign(element("th", "", name), { scope: "col" }));
    }
    const body = table.createTBody();
    this.steps.forEach((step, place) => {
      const row = body.insertRow();
      row.append(Object.assign(element("th", "", place + 1), { scope: "row" }));
      row.insertCell().textContent = spoken(step.decoding_seconds);
      if (this.drafted) {
        row.insertCell().append(...(step.drafted ? draftOf(step, this.eos) : ["nothing"]));
        row.insertCell().textContent = step.drafted ? `${step.accepted} of ${step.drafted}` : "";
      }
      row.insertCell().append(...(step.positions.length ? writtenBy(step, this.eos, this.scattered) : ["nothing yet"]));
    });
    box.append(table);
  }
}

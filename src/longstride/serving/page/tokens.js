// Tokens as elements: what an output looks like after some iterations, and each iteration by itself.

export function element(name, kind, content) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  if (content !== undefined) made.textContent = content;
  return made;
}

function token(id, text, eos, kind, name = "span") {
  const made = element(name, `token ${kind}`, id === eos ? "end" : text || "·");
  if (id === eos) made.classList.add("eos");
  return made;
}

// Words stay words: white space that a token begins with stands before its box.
function spaced(id, text, eos, kind, name) {
  const begun = text.match(/^\s*/)[0];
  return [...(begun ? [" "] : []), token(id, text.slice(begun.length), eos, kind, name)];
}

// Whether a token of a step was drafted, or is the model's own.
function verdict(step, place) {
  return !step.drafted ? "written" : place < step.accepted ? "stood" : "own";
}

// The nodes of a draft that stood: from the root, each time the child that was committed.
function path(step) {
  if (!step.parents) return Array.from({ length: step.accepted }, (_, place) => place);
  const found = [];
  for (let place = 0, slot = 0; place < step.accepted; place++) {
    const node = step.parents.findIndex((parent, one) => parent === slot && step.draft[one] === step.ids[place]);
    if (node < 0) break;
    found.push(node);
    slot = node + 1;
  }
  return found;
}

// Leaves of a tree, each with the nodes that lead to it, what stood first; a chain has one.
function branches(step) {
  if (!step.parents) return [step.draft.map((_, node) => node)];
  const inner = new Set(step.parents);
  const leaves = step.draft.map((_, node) => node).filter((node) => !inner.has(node + 1));
  const stood = new Set(path(step));
  const shared = (branch) => branch.filter((node) => stood.has(node)).length;
  const found = leaves.map((leaf) => {
    const nodes = [];
    for (let node = leaf; node >= 0; node = step.parents[node] - 1) nodes.unshift(node);
    return nodes;
  });
  return found.sort((one, other) => shared(other) - shared(one));
}

// Drafted tokens, of a tree branch by branch: of every further branch what it does not share with those before it, and
// which token that follows.
function drafted(step, eos, kindOf) {
  const shown = new Set();
  const boxes = branches(step).map((branch, number) => {
    const end = branch.findIndex((node) => step.draft[node] === eos); // behind it there is nothing
    const fresh = (end < 0 ? branch : branch.slice(0, end + 1)).filter((node) => !shown.has(node));
    const parts = fresh.flatMap((node) => {
      shown.add(node);
      const look = kindOf(node);
      return look ? spaced(step.draft[node], step.draft_texts[node], eos, look.kind, look.name) : [];
    });
    if (!number || !parts.length) return parts;
    const parent = step.parents[fresh[0]];
    return [element("span", "at", parent ? `after ${step.draft_texts[parent - 1].trim()}` : "or"), ...parts];
  });
  if (!step.parents) return boxes.flat();
  return boxes.filter((parts) => parts.length).map((parts) => {
    const box = element("span", "branch");
    box.append(...parts);
    return box;
  });
}

// What was drafted and did not stand; behind the end nobody looked.
function rejected(step, eos) {
  if (step.ids.includes(eos)) return [];
  const stood = new Set(path(step));
  return drafted(step, eos, (node) => (stood.has(node) ? undefined : { kind: "rejected", name: "del" }));
}

// The output after `count` iterations; `next`: the draft of the one that is under way is shown instead of what was
// rejected before.
export function outputAfter(steps, count, eos, next) {
  const cells = new Map();
  steps.slice(0, count).forEach((step, number) => {
    step.positions.forEach((position, place) => {
      const kind = number === count - 1 ? `new ${verdict(step, place)}` : "";
      cells.set(position, [step.ids[place], step.texts[place], eos, kind]);
    });
  });
  const made = [];
  const last = Math.max(-1, ...cells.keys());
  for (let position = 0; position <= last; position++) {
    if (cells.has(position)) made.push(...spaced(...cells.get(position)));
    else made.push(" ", element("span", "gap", "·"));
  }
  if (next && steps[count]) made.push(...drafted(steps[count], eos, () => ({ kind: "ghost" })));
  else if (count) made.push(...rejected(steps[count - 1], eos));
  return made;
}

// Whether a step wrote one run: then places need not be named.
export function inOrder(step) {
  return step.positions.every((position, place) => position === step.positions[0] + place);
}

// One iteration for the table: what was drafted, and what was written.
export function draftOf(step, eos) {
  const stood = new Set(path(step));
  return drafted(step, eos, (node) => (stood.has(node) ? { kind: "stood" } : { kind: "rejected", name: "del" }));
}

export function writtenBy(step, eos, places) {
  return step.positions.flatMap((position, place) => [
    ...(places ? [" ", element("span", "at", position + 1)] : []),
    ...spaced(step.ids[place], step.texts[place], eos, verdict(step, place)),
  ]);
}

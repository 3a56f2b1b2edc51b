// SPDX-License-Identifier: Apache-2.0
"use strict";

const POLL_MS = 1000, ANSWER_MS = 4000;
// Until a stream that was asked for counts as not given.
const STREAM_MS = 2500;
const BUDGET_MS = 1000 / 30;
// Under this name the server says whether it still sends us pictures: browsers do not tell when a
// stream of pictures ends.
const VIEWER = Array.from(crypto.getRandomValues(new Uint8Array(8)),
                          byte => byte.toString(16).padStart(2, "0")).join("");

const byId = id => document.getElementById(id);

// ---- Text ----------------------------------------------------------------------------------------
const number = (value, digits) => Number.isFinite(value) ? value.toFixed(digits) : "–";
const ms = value => number(value, value < 10 ? 2 : 1);
const count = value => Number.isFinite(value) ? value.toLocaleString("en-US") : "–";
const counted = (value, one, many) => `${count(value)} ${value === 1 ? one : many}`;

// Only what changes is written, so that selections stay and readers of screens hear changes only.
function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
function sayIfAny(element, text) {
  say(element, text);
  element.hidden = text === "";
}
function add(parent, tag, className = "", text = "") {
  const element = parent.appendChild(document.createElement(tag));
  if (className) element.className = className;
  if (text) element.textContent = text;
  return element;
}
const setWidth = (element, share) => { element.style.width = `${Math.min(1, Math.max(0, share)) * 100}%`; };

// ---- The stream ----------------------------------------------------------------------------------
const picture = byId("stream");
let streamsAskedFor = 0, askedAt = -Infinity;

function askForStream() {
  askedAt = performance.now();
  picture.src = `stream.mjpg?viewer=${VIEWER}&n=${++streamsAskedFor}`;
}
function leaveStream() {
  askedAt = -Infinity;
  picture.removeAttribute("src");
}
picture.addEventListener("load", () => { picture.hidden = false; });

// Why there are no new pictures; "" if there are.
function tendStream(status) {
  const viewers = status.viewers;
  if (!status.running) {
    return `The pipeline has ended after ${counted(status.frames.captured, "frame", "frames")}.`;
  }
  if (viewers.you_watch) return picture.naturalWidth > 0 ? "" : "Waiting for the first picture.";
  if (performance.now() - askedAt < STREAM_MS) return "";
  if (viewers.watching >= viewers.limit) {
    return `${counted(viewers.limit, "viewer watches", "viewers watch")} already, and no more may. ` +
           "The pictures come as soon as one leaves.";
  }
  askForStream();
  return picture.naturalWidth > 0 ? "" : "Waiting for the first picture.";
}

// ---- Numbers -------------------------------------------------------------------------------------
function showUtilization(id, share) {
  say(byId(id), number(share === null ? NaN : share * 100, 1));
  setWidth(byId(`${id}-bar`), share || 0);
}

const stageNames = {
  capture: "capture", decode: "decode", queue: "waiting", resize: "resize", infer: "inference",
  link_out: "link out", compute: "compute", link_in: "link in", post: "results", draw: "draw",
  encode: "encode", total: "total",
};
// The device's share of the inference.
const partsOfInference = new Set(["link_out", "compute", "link_in"]);
const rows = new Map();

function latencyRow(stage) {
  if (!rows.has(stage)) {
    const row = add(byId("latency"), "div", stage === "total" ? "row total" :
                    partsOfInference.has(stage) ? "row part" : "row");
    row.setAttribute("role", "listitem");
    add(row, "span", "", stageNames[stage] || stage);
    const track = add(row, "div", "track"), part = name => add(track, "div", name);
    const parts = {row, track, p50: part("p50"), p90: part("mark p90"), p99: part("mark p99")};
    if (stage === "total") parts.budget = part("budget");
    const numbers = add(row, "span", "numbers");
    parts.median = add(numbers, "b");
    parts.rest = add(numbers, "span", "more");
    rows.set(stage, parts);
  }
  return rows.get(stage);
}

function showLatency(stages) {
  for (const stage of stages) latencyRow(stage.stage);  // all, so that they are in order
  const happens = stages.filter(stage => stage.count > 0);
  const total = happens.find(stage => stage.stage === "total");
  // A few outliers must not make everything else invisible; their marks stay at the end.
  const end = 1.06 * Math.max(BUDGET_MS, total ? Math.min(total.p99, 4 * total.p50) : 0);
  for (const stage of happens) {
    const row = latencyRow(stage.stage);
    row.track.classList.toggle("over", stage.stage === "total" && stage.p50 > BUDGET_MS);
    setWidth(row.p50, stage.p50 / end);
    for (const mark of ["p90", "p99"]) row[mark].style.left = `${Math.min(1, stage[mark] / end) * 100}%`;
    if (row.budget) row.budget.style.left = `${BUDGET_MS / end * 100}%`;
    say(row.median, `${ms(stage.p50)} ms`);
    say(row.rest, ` · ${ms(stage.p90)} · ${ms(stage.p99)}`);
    row.row.title = `median ${ms(stage.p50)} ms, 90 % within ${ms(stage.p90)}, 99 % within ` +
                    `${ms(stage.p99)}, slowest ${ms(stage.max)}; ${counted(stage.count, "frame", "frames")}`;
  }
  for (const [name, row] of rows) row.row.hidden = !happens.some(stage => stage.stage === name);
  say(byId("delay"), total ? ms(total.p50) : "–");
  say(byId("delay-p99"), total ? `99 % within ${ms(total.p99)} ms` : "");
}

// ---- Models --------------------------------------------------------------------------------------
const cards = [];

function modelCard() {
  const card = add(byId("models"), "section", "card model");
  const head = add(card, "div", "head");
  const parts = {card, name: add(head, "h2"), task: add(head, "span", "badge")};
  const facts = add(card, "dl", "facts");
  const fact = name => {
    const term = add(facts, "dt", "", name);
    return {term, value: add(facts, "dd")};
  };
  parts.where = fact("where");
  parts.looksInto = fact("looks into");
  parts.inferences = fact("inferences");
  parts.latency = fact("measured");
  parts.modelled = fact("modelled");
  parts.priority = fact("priority");
  parts.results = add(card, "ul", "results");
  parts.results.setAttribute("aria-label", "latest results");
  parts.details = add(card, "details");
  parts.summary = add(parts.details, "summary");
  parts.reasons = add(parts.details, "ul");
  return parts;
}

function showList(list, texts) {
  while (list.children.length > texts.length) list.lastChild.remove();
  texts.forEach((text, i) => say(list.children[i] || add(list, "li"), text));
}
function showFact(fact, text) {
  sayIfAny(fact.value, text);
  fact.term.hidden = fact.value.hidden;
}

function showModels(models) {
  while (cards.length > models.length) cards.pop().card.remove();
  models.forEach((model, i) => {
    const card = cards[i] || (cards[i] = modelCard()), times = model.infer_ms;
    say(card.name, model.name);
    say(card.task, model.task);
    showFact(card.where, model.partition);
    showFact(card.looksInto, model.runs_on ? `what ${model.runs_on} finds` : "");
    showFact(card.inferences, count(model.inferences));
    showFact(card.latency, times.count > 0 ?
        `${ms(times.p50)} ms, 90 % within ${ms(times.p90)}, 99 % within ${ms(times.p99)}` : "–");
    showFact(card.modelled, model.modelled_device_ms === null ? "" :
        `${ms(model.modelled_device_ms)} ms on the device`);
    showFact(card.priority, model.priority === 0 ? "" : `${model.priority}`);
    showList(card.results, model.results.length > 0 ? model.results : ["nothing found"]);
    card.details.hidden = model.reasons.length === 0;
    say(card.summary, `Why operators run on the CPU (${model.reasons.length})`);
    showList(card.reasons, model.reasons);
  });
}

// ---- All of it -----------------------------------------------------------------------------------
function healthText(device) {
  const kinds = [
    ["failures", "request failed", "requests failed"], ["resets", "reset", "resets"],
    ["reopenings", "time opened anew", "times opened anew"], ["losses", "time lost", "times lost"],
    ["replays", "request sent again", "requests sent again"],
    ["fallbacks", "request computed without it", "requests computed without it"],
  ];
  const said = kinds.filter(([key]) => device[key] > 0)
                    .map(([key, one, many]) => counted(device[key], one, many));
  return said.length > 0 ? `Trouble so far: ${said.join(", ")}.` : "";
}

function show(status) {
  const {frames, device, viewers} = status;
  say(byId("source"), status.source);
  say(byId("picture"), status.width > 0 ? `${status.width} × ${status.height}, ` +
      (status.policy === "newest" ? "always the newest frame." : `${status.policy} frame.`) : "");
  if (status.width > 0) picture.parentElement.style.aspectRatio = `${status.width} / ${status.height}`;
  say(byId("fps"), number(frames.processed_fps, 1));
  say(byId("captured-fps"), `${number(frames.captured_fps, 1)} captured`);
  document.title = `${number(frames.processed_fps, 1)} fps · atoll camera`;
  for (const kind of ["captured", "processed", "dropped", "failed", "in_flight"]) {
    say(byId(kind), count(frames[kind]));
  }
  sayIfAny(byId("last-failure"), frames.last_failure && `Latest failure: ${frames.last_failure}`);
  showUtilization("utilization", device.name ? device.utilization : null);
  showUtilization("modelled-utilization", device.modelled_utilization);
  say(byId("device"), !device.name ? "None: everything runs on the CPU." :
      `${device.name}: ${device.description}${device.emulated ? " (emulated on this host)" : ""}`);
  sayIfAny(byId("health"), healthText(device));
  showLatency(status.stages_ms);
  showModels(status.models);
  say(byId("viewers"), `${viewers.watching} of ${counted(viewers.limit, "viewer", "viewers")}; since ` +
      `the start ${count(viewers.served)} served, ${count(viewers.refused)} refused, ` +
      `${counted(viewers.frames_skipped, "frame", "frames")} skipped for slow ones.`);
}

function showState(text, kind) {
  say(byId("state"), text);
  byId("state").className = `badge ${kind}`;
}

let answeredAt = performance.now(), hasAnswer = false;

function complain() {
  const seconds = Math.round((performance.now() - answeredAt) / 1000);
  if (seconds < 3) return;
  showState(hasAnswer ? "not connected" : "connecting", "wrong");
  sayIfAny(byId("message"), `No answer for ${seconds} s. The page goes on when the server is back.`);
}

async function poll() {
  try {
    const answer = await fetch(`api/status?viewer=${VIEWER}`,
                               {cache: "no-store", signal: AbortSignal.timeout(ANSWER_MS)});
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    const status = await answer.json();
    answeredAt = performance.now();
    hasAnswer = true;
    show(status);
    showState(status.running ? "running" : "ended", status.running ? "running" : "wrong");
    sayIfAny(byId("message"), tendStream(status));
  } catch {
    complain();
  }
}

// A page that nobody sees asks for nothing, so that the pipeline need not encode pictures for it.
async function goOn() {
  if (!document.hidden) await poll();
  setTimeout(goOn, POLL_MS);
}
document.addEventListener("visibilitychange", () => {
  if (document.hidden) leaveStream();
});
goOn();

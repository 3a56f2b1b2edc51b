// SPDX-License-Identifier: Apache-2.0
"use strict";
// Asks /state every second, and runs models by POST .../infer with binary tensors.

const at = (id) => document.getElementById(id);
let token = "";
let models = [];

function ask(path, options = {}) {
  const headers = {...options.headers};
  if (token) headers.Authorization = "Bearer " + token;
  return fetch(path, {...options, headers, cache: "no-store"});
}

function row(body, cells) {
  const line = body.insertRow();
  for (const cell of cells) line.insertCell().textContent = cell;
}

const ms = (us) => (us / 1000).toFixed(us < 10000 ? 2 : 0) + " ms";

function show(state) {
  at("name").textContent = state.name;
  const device = state.device;
  at("device").textContent = "Device: " + device.description + " (" + device.name + ")" +
      (device.emulated ? ", emulated" : "") + (device.note ? ". " + device.note : "") +
      (device.fallbacks ? ". " + device.fallbacks + " requests fell back." : "");
  const body = at("models");
  body.replaceChildren();
  for (const model of state.models) {
    const ready = model.state === "READY";
    row(body, [model.name, model.version, ready ? "ready" : model.state.toLowerCase() + ": " + model.reason,
               ready ? model.device_nodes + " of " + model.nodes + " operators" : "",
               model.success ?? "", model.fail ?? "", model.refused ?? "",
               model.success ? ms(model.average_us) : "", model.success ? ms(model.queue_us) : ""]);
  }
  const active = at("active");
  active.replaceChildren();
  for (const one of state.active) {
    row(active, [one.model, one.client, one.priority || "", one.running ? "runs" : "waits", ms(one.since_us)]);
  }
  at("nobody").hidden = state.active.length > 0;
  models = state.models.filter((model) => model.state === "READY");
  const select = at("model");
  const names = models.map((model) => model.name).join("\n");
  if (select.dataset.names !== names) {
    select.dataset.names = names;
    const chosen = select.value;
    select.replaceChildren(...models.map((model) => new Option(model.name)));
    if (models.some((model) => model.name === chosen)) select.value = chosen;
  }
}

async function refresh() {
  try {
    const answer = await ask("state");
    at("login").hidden = answer.status !== 401;
    if (answer.ok) show(await answer.json());
    at("problem").textContent = answer.ok || answer.status === 401 ? "" : (await answer.json()).error;
  } catch (error) {
    at("problem").textContent = "The server does not answer.";
  }
  setTimeout(refresh, document.hidden ? 5000 : 1000);
}

// The picture as the bytes of the model's input [1, height, width, channels].
async function pixels(file, input) {
  const [, height, width, channels] = input.shape;
  const canvas = at("canvas");
  canvas.width = width;
  canvas.height = height;
  const context = canvas.getContext("2d", {willReadFrequently: true});
  context.drawImage(await createImageBitmap(file), 0, 0, width, height);
  const rgba = context.getImageData(0, 0, width, height).data;
  const levels = new Uint8Array(width * height * channels);
  for (let i = 0; i < width * height; ++i) {
    const [r, g, b] = rgba.subarray(i * 4, i * 4 + 3);
    if (channels === 1) {
      levels[i] = Math.round(0.299 * r + 0.587 * g + 0.114 * b);
    } else {
      levels.set([r, g, b], i * 3);
    }
  }
  if (input.datatype === "UINT8") return levels;
  // Levels from -1 to 1 where the model can hold these, else from 0 to 1.
  if (input.datatype === "INT8") {
    const low = input.scale * (-128 - input.zero_point);
    return Int8Array.from(levels, (level) => {
      const real = low < -0.5 ? level / 127.5 - 1 : level / 255;
      return Math.max(-128, Math.min(127, Math.round(real / input.scale) + input.zero_point));
    });
  }
  return Float32Array.from(levels, (level) => level / 127.5 - 1);
}

async function run() {
  const model = models.find((one) => one.name === at("model").value);
  const file = at("picture").files[0];
  at("classes").replaceChildren();
  at("values").textContent = "";
  at("took").textContent = "";
  if (!model || !file) return "Choose a model and a picture.";
  const input = model.inputs[0];
  const takesPictures = model.inputs.length === 1 && input.shape.length === 4 &&
      [1, 3].includes(input.shape[3]) && ["UINT8", "INT8", "FP32"].includes(input.datatype);
  if (!takesPictures) return "This model does not take a picture.";
  const data = await pixels(file, input);
  const output = model.outputs[0];
  const classes = model.labels && model.outputs.length === 1;
  const head = new TextEncoder().encode(JSON.stringify({
    inputs: [{name: input.name, datatype: input.datatype, shape: input.shape,
              parameters: {binary_data_size: data.byteLength}}],
    outputs: classes ? [{name: output.name, parameters: {classification: 5}}]
                     : model.outputs.map(({name}) => ({name})),
  }));
  const start = performance.now();
  const answer = await ask("v2/models/" + encodeURIComponent(model.name) + "/infer", {
    method: "POST",
    headers: {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": String(head.length)},
    body: new Blob([head, data]),
  });
  const result = await answer.json();
  if (!answer.ok) return result.error;
  at("took").textContent = (performance.now() - start).toFixed(1) + " ms with the way there and back";
  if (classes) {
    for (const text of result.outputs[0].data) {
      const [score, index, label] = text.split(":");
      const item = document.createElement("li");
      item.textContent = (label || "class " + index) + ": " + Number(score).toFixed(3);
      at("classes").append(item);
    }
  } else {
    at("values").textContent = result.outputs.map(({name, shape, data: values}) =>
        name + " [" + shape + "]: " + values.slice(0, 200).join(", ") + (values.length > 200 ? ", ..." : "")).join("\n");
  }
  return "";
}

at("try").addEventListener("submit", async (event) => {
  event.preventDefault();
  try {
    at("problem").textContent = await run();
  } catch (error) {
    at("problem").textContent = String(error);
  }
});
at("login").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value;
});
refresh();

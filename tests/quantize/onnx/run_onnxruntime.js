// SPDX-License-Identifier: Apache-2.0
//
// usage: node run_onnxruntime.js ONNXRUNTIME FOLDER
//
// Runs each NAME.onnx of FOLDER, without optimizations, on the inputs in NAME.json, a list of
// {shape, values} in the order of the model's inputs, and writes the values of its outputs to
// NAME.out.json, a list of lists. What does not run is named on stderr.
const fs = require('fs');
const path = require('path');

const [, , home, folder] = process.argv;
const ort = require(path.join(home, 'node_modules', 'onnxruntime-node'));

async function run(name) {
  const session = await ort.InferenceSession.create(path.join(folder, name + '.onnx'), {
    graphOptimizationLevel: 'disabled', logSeverityLevel: 4, intraOpNumThreads: 1,
  });
  const inputs = JSON.parse(fs.readFileSync(path.join(folder, name + '.json'), 'utf8'));
  const feeds = {};
  session.inputNames.slice(0, inputs.length).forEach((input, i) => {
    feeds[input] = new ort.Tensor('float32', Float32Array.from(inputs[i].values), inputs[i].shape);
  });
  const outputs = await session.run(feeds);
  const lists = session.outputNames.map((output) => Array.from(outputs[output].data, Number));
  fs.writeFileSync(path.join(folder, name + '.out.json'), JSON.stringify(lists));
}

(async () => {
  for (const file of fs.readdirSync(folder).sort()) {
    if (!file.endsWith('.onnx')) continue;
    const name = file.slice(0, -'.onnx'.length);
    try {
      await run(name);
    } catch (error) {
      console.error(`${name}: ${error.message}`);
    }
  }
})();

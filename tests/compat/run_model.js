// SPDX-License-Identifier: Apache-2.0
//
// usage: node run_model.js MODEL SEED[,SEED ...] [--delegate LIBRARY [KEY=VALUE ...]] [--times N]
//
// A program for Node as others write it over TensorFlow Lite's addon (package tfjs-tflite-node, of
// which NODE_PATH knows the place): fills the inputs from each SEED as the reference data says, runs
// the model, and prints one line of JSON for each: what the inputs and outputs are, and the outputs'
// bytes in base64. With --times N, one line at the end: the shortest of N runs, in microseconds.
'use strict';
const fs = require('fs');
const {TFLiteNodeModelRunner} = require('tfjs-tflite-node');

const MASK = (1n << 64n) - 1n;

// The bytes that the reference data fills a buffer with.
function fill(info, bytes, seed) {
  let state = BigInt(seed);
  const next = () => {
    state = (state + 0x9E3779B97F4A7C15n) & MASK;
    let z = state;
    z = ((z ^ (z >> 30n)) * 0xBF58476D1CE4E5B9n) & MASK;
    z = ((z ^ (z >> 27n)) * 0x94D049BB133111EBn) & MASK;
    return z ^ (z >> 31n);
  };
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (info.dataType === 'float32') {
    for (let i = 0; i < bytes.length; i += 4) {
      view.setFloat32(i, Number(next() >> 40n) / 2 ** 24 * 2 - 1, true);
    }
    return;
  }
  let i = 0;
  for (; i + 8 <= bytes.length; i += 8) view.setBigUint64(i, next(), true);
  if (i < bytes.length) {
    let rest = next();
    for (; i < bytes.length; ++i, rest >>= 8n) bytes[i] = Number(rest & 255n);
  }
}

function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function describe(info) {
  return {name: info.name, id: info.id, dataType: info.dataType, shape: info.shape};
}

const [model, seeds, ...rest] = process.argv.slice(2);
const options = {threads: 1};
let times = 0;
while (rest.length > 0) {
  const word = rest.shift();
  if (word === '--delegate') {
    options.delegate = {path: rest.shift(), options: []};
    while (rest.length > 0 && rest[0].includes('=')) {
      const pair = rest.shift();
      const at = pair.indexOf('=');
      options.delegate.options.push([pair.slice(0, at), pair.slice(at + 1)]);
    }
  } else if (word === '--times') {
    times = Number(rest.shift());
  }
}
const file = fs.readFileSync(model);
const runner = new TFLiteNodeModelRunner(
    file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength), options);
for (const seed of seeds.split(',')) {
  const inputs = runner.getInputs();
  for (const input of inputs) {
    const data = input.data();  // the addon's copy, which infer() takes over
    fill(input, bytesOf(data), seed);
  }
  runner.infer();
  console.log(JSON.stringify({
    inputs: inputs.map(describe),
    outputs: runner.getOutputs().map(
        (output) => ({
          ...describe(output),
          base64: Buffer.from(bytesOf(output.data())).toString('base64'),
        })),
  }));
}
if (times > 0) {
  let shortest = Infinity;
  for (let i = 0; i < times; ++i) {
    const before = process.hrtime.bigint();
    runner.infer();
    shortest = Math.min(shortest, Number(process.hrtime.bigint() - before) / 1000);
  }
  console.log(JSON.stringify({us: shortest}));
}
runner.cleanUp?.();

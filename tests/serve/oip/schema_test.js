// SPDX-License-Identifier: Apache-2.0
//
// Every answer of atoll-serve in JSON is what the specification says (schemas.json), as ajv judges,
// which shares no code with the server or the other tests. Environment: ATOLL_SERVE,
// ATOLL_SOURCE_DIR and ATOLL_AJV, the folder with node_modules.
'use strict';
const assert = require('assert');
const { spawn } = require('child_process');
const fs = require('fs');
const http = require('http');
const os = require('os');
const path = require('path');

const modules = path.join(process.env.ATOLL_AJV, 'node_modules');
if (!fs.existsSync(modules)) {
  console.log('ATOLL-SKIPPED: ajv, which npm brings');
  process.exit(0);
}
const Ajv = require(path.join(modules, 'ajv'));
const SOURCE = process.env.ATOLL_SOURCE_DIR;
const SCHEMAS = JSON.parse(fs.readFileSync(path.join(__dirname, 'schemas.json')));
const ajv = new Ajv({ strict: true, strictTypes: false, allErrors: true });
for (const name of Object.keys(SCHEMAS)) ajv.addSchema({ $id: name, ...SCHEMAS[name] });

function check(name, value) {
  const validate = ajv.getSchema(name);
  assert(validate, `no schema ${name}`);
  assert(validate(value), `${name}: ${ajv.errorsText(validate.errors)}: ` +
                          JSON.stringify(value).slice(0, 500));
}

// A request on a connection of its own: its status and what came.
function ask(port, method, where, body, headers) {
  return new Promise((resolve, reject) => {
    const request = http.request(
      { timeout: 10000, host: '127.0.0.1', port, method, path: where, agent: false, headers: headers || {} },
      (response) => {
        const pieces = [];
        response.on('data', (piece) => pieces.push(piece));
        response.on('end', () => resolve({
          status: response.statusCode, headers: response.headers, body: Buffer.concat(pieces) }));
      });
    request.on('error', reject);
    request.on('timeout', () => request.destroy(new Error(`no answer to ${method} ${where}`)));
    request.end(body);
  });
}

// What makes a schema that lets everything pass fail.
function checkTheSchemas(answer) {
  const broken = [
    ['answer', { ...answer, outputs: undefined }], ['answer', { ...answer, model_name: 7 }],
    ['answer', { ...answer, outputs: [{ ...answer.outputs[0], datatype: 'INT7' }] }],
    ['answer', { ...answer, outputs: [{ ...answer.outputs[0], shape: ['1'] }] }],
    ['error', { error: 'x', more: 1 }], ['error', {}], ['live', { live: 'true' }],
    ['index', [{ name: 'x', state: 'GOOD', reason: '' }]], ['model', {}], ['config', { name: 'x' }],
    ['statistics', { model_stats: [{}] }], ['server', { name: 'x', version: '1' }],
  ];
  for (const [name, value] of broken) {
    assert.throws(() => check(name, JSON.parse(JSON.stringify(value))), undefined, name);
  }
}

let server = null;

async function run() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll_schema'));
  for (const [name, file] of [['simple', 'tests/models/simple.tflite'],
                              ['fashion', 'models/fashion/fashion_int8.tflite'],
                              ['scenes', 'models/scenes/scenes_int8.tflite']]) {
    fs.mkdirSync(path.join(folder, name, '1'), { recursive: true });
    fs.copyFileSync(path.join(SOURCE, file), path.join(folder, name, '1/model.tflite'));
  }
  fs.copyFileSync(path.join(SOURCE, 'models/fashion/labels.txt'), path.join(folder, 'fashion/labels.txt'));
  server = spawn(process.env.ATOLL_SERVE,
                       ['--models', folder, '--listen', '127.0.0.1:0', '--grpc', 'none', '--device',
                        'emu', '--model-control', 'explicit', '--allow-shared-memory'],
                       { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  const port = await new Promise((resolve, reject) => {
    server.stdout.on('data', (text) => {
      output += text;
      const found = output.match(/http:\/\/127\.0\.0\.1:(\d+)\//);
      if (found) resolve(Number(found[1]));
    });
    server.on('exit', () => reject(new Error(`the server has ended: ${output}`)));
  });
  let answers = 0;
  const good = async (schema, method, where, body, headers, status = 200) => {
    const answer = await ask(port, method, where, body && (Buffer.isBuffer(body) ? body : JSON.stringify(body)), headers);
    assert.strictEqual(answer.status, status, `${where}: ${answer.body.slice(0, 300)}`);
    ++answers;
    if (schema === null) {
      assert.strictEqual(answer.body.length, 0, where);
      return answer;
    }
    assert.strictEqual(answer.headers['content-type'], 'application/json', where);
    const value = JSON.parse(answer.body);
    check(schema, value);
    return value;
  };
  const bad = (status, method, where, body, headers) => good('error', method, where, body, headers, status);

  await good('server', 'GET', '/v2');
  await good('live', 'GET', '/v2/health/live');
  await good('ready', 'GET', '/v2/health/ready');
  const data = [...Array(16).keys()];
  const simple = { id: 'of mine', inputs: [
    { name: 'INPUT0', shape: [1, 16], datatype: 'INT32', data: [data] },
    { name: 'INPUT1', shape: [1, 16], datatype: 'INT32', data }] };
  for (const model of ['simple', 'fashion', 'scenes']) {
    for (const version of ['', '/versions/1']) {
      await good('model', 'GET', `/v2/models/${model}${version}`);
      await good('model_ready', 'GET', `/v2/models/${model}${version}/ready`);
      await good('config', 'GET', `/v2/models/${model}${version}/config`);
      await good('statistics', 'GET', `/v2/models/${model}${version}/stats`);
    }
    const { inputs } = await good('model', 'GET', `/v2/models/${model}`);
    const request = { inputs: inputs.map(({ name, datatype, shape }) => ({
      name, datatype, shape, data: Array(shape.reduce((a, b) => a * b, 1)).fill(1) })) };
    const answer = await good('answer', 'POST', `/v2/models/${model}/infer`, request);
    for (const { shape, data: values } of answer.outputs) {
      assert.strictEqual(values.flat(Infinity).length, shape.reduce((a, b) => a * b, 1));
    }
    checkTheSchemas(answer);
  }
  const answer = await good('answer', 'POST', '/v2/models/simple/infer', simple);
  assert.strictEqual(answer.id, 'of mine');
  await good('answer', 'POST', '/v2/models/fashion/infer', {
    inputs: [{ name: 'image', shape: [1, 28, 28, 1], datatype: 'INT8', data: Array(784).fill(0) }],
    outputs: [{ name: 'probabilities', parameters: { classification: 3 } }] });
  // The JSON in front of binary tensors.
  const head = Buffer.from(JSON.stringify({
    inputs: [{ name: 'image', shape: [1, 28, 28, 1], datatype: 'INT8', parameters: { binary_data_size: 784 } }],
    parameters: { binary_data_output: true } }));
  const LENGTH = 'inference-header-content-length';
  const binary = await ask(port, 'POST', '/v2/models/fashion/infer', Buffer.concat([head, Buffer.alloc(784)]),
                           { [LENGTH]: head.length });
  assert.strictEqual(binary.status, 200);
  check('answer', JSON.parse(binary.body.subarray(0, Number(binary.headers[LENGTH]))));

  await good('statistics', 'GET', '/v2/models/stats');
  await good('index', 'POST', '/v2/repository/index', {});
  await good('index', 'POST', '/v2/repository/index', { ready: true });
  await good(null, 'POST', '/v2/repository/models/scenes/unload', {});
  await good('index', 'POST', '/v2/repository/index', {});
  await good(null, 'POST', '/v2/repository/models/scenes/load', {});
  await good('regions', 'GET', '/v2/systemsharedmemory/status');

  // Errors, whoever finds them.
  await bad(404, 'GET', '/nothing');
  await bad(404, 'GET', '/v2/models/nobody');
  await good('model_ready', 'GET', '/v2/models/nobody/ready', undefined, undefined, 400);
  await bad(405, 'DELETE', '/v2');
  await bad(400, 'POST', '/v2/models/simple/infer', Buffer.from('{"inputs":'));
  await bad(400, 'POST', '/v2/models/simple/infer', { inputs: [] });
  await bad(400, 'POST', '/v2/models/simple/infer', Buffer.from('\xff"\\\x00', 'latin1'));
  await bad(400, 'POST', `/v2/models/simple/infer`, { ...simple, outputs: [{ name: '\ud800"<\u0000' }] });
  await bad(413, 'POST', '/v2/models/simple/infer', undefined, { 'content-length': 1e12 });
  await bad(415, 'POST', '/v2/models/simple/infer', simple, { 'content-encoding': 'gzip' });
  await bad(421, 'GET', '/v2', undefined, { host: 'elsewhere.example' });
  await bad(403, 'GET', '/v2', undefined, { origin: 'http://elsewhere.example' });
  await bad(404, 'POST', '/v2/repository/models/nobody/load', {});
  await bad(400, 'POST', '/v2/repository/models/simple/load', { parameters: { config: '{' } });
  await bad(404, 'POST', '/v2/systemsharedmemory/region/r/register', { key: '/nobody', offset: 0, byte_size: 1 });

  server.removeAllListeners('exit');
  const ended = new Promise((resolve) => server.on('exit', resolve));
  server.kill('SIGTERM');
  assert.strictEqual(await ended, 0);
  fs.rmSync(folder, { recursive: true });
  console.log(`${answers} answers are what the specification says`);
}

run().catch((error) => {
  console.error(error);
  if (server) server.kill('SIGKILL');
  process.exit(1);
});

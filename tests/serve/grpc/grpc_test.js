// SPDX-License-Identifier: Apache-2.0
//
// atoll-serve over gRPC, by gRPC for Node, which shares no code with it. Bytes are those of `atoll
// run`. Environment: ATOLL_COMMAND, ATOLL_SERVE, ATOLL_SOURCE_DIR, ATOLL_SHARED_DIR;
// ATOLL_NODE_MODULES, the folder with node_modules; ATOLL_SANITIZED, 1 if sanitizers keep memory.
'use strict';
const assert = require('assert');
const { execFileSync, spawn } = require('child_process');
const crypto = require('crypto');
const fs = require('fs');
const http2 = require('http2');
const os = require('os');
const path = require('path');

const { eventually, grpc, load } = require('../testing');

const SOURCE = process.env.ATOLL_SOURCE_DIR;
const FASHION = path.join(SOURCE, 'models/fashion/fashion_int8.tflite');
const FORM = { keepCase: true, longs: Number, enums: String, oneofs: true, defaults: true };
const { inference } = load(path.join(SOURCE, 'serve/grpc/inference.proto'), FORM);
const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'atoll_grpc'));
fs.writeFileSync(path.join(folder, 'health.proto'), `
  syntax = "proto3";
  package grpc.health.v1;
  message HealthCheckRequest { string service = 1; }
  message HealthCheckResponse {
    enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
    ServingStatus status = 1;
  }
  service Health { rpc Check(HealthCheckRequest) returns (HealthCheckResponse); }`);
const health = load(path.join(folder, 'health.proto'), FORM).grpc.health.v1;
const running = [];

// A server with a port of its own for gRPC.
async function start(words, address = '127.0.0.1:0') {
  const child = spawn(process.env.ATOLL_SERVE,
                      ['--listen', `unix:${folder}/${running.length}.sock`, '--grpc', address,
                       '--device', 'emu', ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  running.push(child);
  let output = '';
  child.stdout.on('data', (text) => { output += text; });
  child.stderr.on('data', (text) => { output += text; });
  child.ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
  await eventually(() => output.includes('Ctrl-C') || child.exitCode !== null, 'the start');
  child.output = output;
  const found = output.match(/gRPC at (127\.0\.0\.1:\d+)/);
  child.address = found && found[1];
  return child;
}

class Client {
  constructor(address, credentials, options) {
    this.stub = new inference.GRPCInferenceService(
      address, credentials || grpc.credentials.createInsecure(), options || {});
  }
  call(method, request, options, metadata) {
    return new Promise((resolve, reject) => this.stub[method](
      request || {}, metadata || new grpc.Metadata(), options || {},
      (error, response) => (error ? reject(error) : resolve(response))));
  }
  async fails(method, request, code, text, options, metadata) {
    await assert.rejects(this.call(method, request, options, metadata), (error) => {
      assert.strictEqual(error.code, code, error.message);
      if (text) assert(error.details.includes(text), error.details);
      return true;
    });
  }
}

// What `atoll run` makes of these bytes.
function expected(model, inputs) {
  const out = path.join(folder, 'out');
  fs.rmSync(out, { recursive: true, force: true });
  fs.mkdirSync(out);
  const words = ['run', model, '--device', 'cpu', '--output-dir', out];
  inputs.forEach((bytes, i) => {
    fs.writeFileSync(path.join(folder, `in_${i}.raw`), bytes);
    words.push('--input', `${i}=${folder}/in_${i}.raw`);
  });
  execFileSync(process.env.ATOLL_COMMAND, words, { stdio: 'ignore' });
  return fs.readdirSync(out).sort((a, b) => parseInt(a.match(/\d+/), 10) - parseInt(b.match(/\d+/), 10))
    .map((name) => fs.readFileSync(path.join(out, name)));
}

const FIELD = { INT8: ['int_contents', Int8Array], UINT8: ['uint_contents', Uint8Array],
                INT32: ['int_contents', Int32Array], INT64: ['int64_contents', BigInt64Array],
                FP32: ['fp32_contents', Float32Array], BOOL: ['bool_contents', Uint8Array] };
function elements(bytes, datatype) {
  const Type = FIELD[datatype][1];
  const copy = new Uint8Array(bytes);  // aligned
  return Array.from(new Type(copy.buffer)).map((value) => (datatype === 'INT64' ? Number(value)
    : datatype === 'BOOL' ? value !== 0 : value));
}
const size = (tensor) => tensor.shape.reduce((a, b) => a * b, 1) * FIELD[tensor.datatype][1].BYTES_PER_ELEMENT;

// Random bytes for all inputs; with what is to be the answer.
async function sample(client, name, file) {
  const info = await client.call('ModelMetadata', { name });
  const inputs = info.inputs.map((tensor) => (tensor.datatype === 'FP32'
    ? Buffer.from(Float32Array.from({ length: size(tensor) / 4 }, Math.random).buffer)
    : crypto.randomBytes(size(tensor))));
  return { info, inputs, outputs: expected(file, inputs) };
}
const rawRequest = (name, { info, inputs }) => ({
  model_name: name, id: 'one', inputs: info.inputs, raw_input_contents: inputs });

async function bytesAreThoseOfTheCommand(client, name, file) {
  const one = await sample(client, name, file);
  const raw = await client.call('ModelInfer', rawRequest(name, one));
  assert.deepStrictEqual([raw.model_name, raw.model_version, raw.id], [name, '1', 'one']);
  assert.deepStrictEqual(raw.outputs.map(({ name: n, datatype, shape }) => ({ name: n, datatype, shape })),
                         one.info.outputs);
  one.outputs.forEach((bytes, i) => assert(bytes.equals(raw.raw_output_contents[i]), name));
  // Element by element, both ways.
  const typed = await client.call('ModelInfer', {
    model_name: name,
    inputs: one.info.inputs.map((tensor, i) => ({
      ...tensor, contents: { [FIELD[tensor.datatype][0]]: elements(one.inputs[i], tensor.datatype) } })),
    parameters: { binary_data_output: { bool_param: false } } });
  assert.strictEqual(typed.raw_output_contents.length, 0);
  one.info.outputs.forEach((tensor, i) => assert.deepStrictEqual(
    typed.outputs[i].contents[FIELD[tensor.datatype][0]],
    elements(one.outputs[i], tensor.datatype), name));
  return one;
}

async function errorsHaveCodes(client) {
  const { status } = grpc;
  const one = await sample(client, 'fashion', FASHION);
  const request = rawRequest('fashion', one);
  const changed = (change) => ({ ...request, ...change });
  const input = request.inputs[0];
  await client.fails('ModelInfer', changed({ model_name: 'trousers' }), status.NOT_FOUND, "'trousers'");
  await client.fails('ModelInfer', changed({ model_version: '7' }), status.NOT_FOUND);
  await client.fails('ModelInfer', changed({ inputs: [] }), status.INVALID_ARGUMENT, '1 raw_input_contents for 0 inputs');
  await client.fails('ModelInfer', { model_name: 'fashion' }, status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ raw_input_contents: [Buffer.alloc(783)] }), status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ inputs: [{ ...input, shape: [1, 28, -28, 1] }] }), status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ inputs: [{ ...input, shape: [2 ** 40, 2 ** 40] }] }), status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ inputs: [{ ...input, datatype: 'QINT7' }] }), status.INVALID_ARGUMENT, "'QINT7'");
  await client.fails('ModelInfer', changed({ inputs: [{ ...input, datatype: 'FP32' }] }), status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ inputs: [{ ...input, contents: { int_contents: [1] } }] }),
                     status.INVALID_ARGUMENT, 'beside raw_input_contents');
  await client.fails('ModelInfer', { model_name: 'fashion', inputs: [{ ...input, contents: { int_contents: Array(784).fill(300) } }] },
                     status.INVALID_ARGUMENT, 'cannot hold');
  await client.fails('ModelInfer', { model_name: 'fashion', inputs: [{ ...input, contents: { int_contents: [1], fp32_contents: [1] } }] },
                     status.INVALID_ARGUMENT, 'several types');
  await client.fails('ModelInfer', changed({ outputs: [{ name: 'nothing' }] }), status.INVALID_ARGUMENT, "'nothing'");
  await client.fails('ModelInfer', changed({ parameters: { priority: { string_param: 'high' } } }), status.INVALID_ARGUMENT, "'priority'");
  await client.fails('ModelInfer', changed({ parameters: { timeout: { int64_param: -1 } } }), status.INVALID_ARGUMENT, 'negative');
  await client.fails('ModelInfer', request, status.DEADLINE_EXCEEDED, undefined, { deadline: Date.now() - 1000 });
  // More than gRPC's own 4 MiB come in, more than this server's limit do not.
  await client.fails('ModelInfer', changed({ raw_input_contents: [Buffer.alloc(5 << 20)] }), status.INVALID_ARGUMENT);
  await client.fails('ModelInfer', changed({ raw_input_contents: [Buffer.alloc(10 << 20)] }), status.RESOURCE_EXHAUSTED);
  await client.fails('ModelMetadata', { name: '../fashion' }, status.NOT_FOUND);
  await client.fails('RepositoryModelLoad', { model_name: 'new' }, status.PERMISSION_DENIED);
  await client.fails('SystemSharedMemoryStatus', {}, status.PERMISSION_DENIED, '--allow-shared-memory');
  assert.deepStrictEqual((await client.call('CudaSharedMemoryStatus')).regions, {});
  assert.strictEqual((await client.call('ModelReady', { name: 'trousers' })).ready, false);
  // None of that did it any harm.
  const after = await client.call('ModelInfer', request);
  assert(one.outputs[0].equals(after.raw_output_contents[0]));
}

async function streamsAnswerInOrder(client) {
  const one = await sample(client, 'fashion', FASHION);
  const answers = [];
  const stream = client.stub.ModelStreamInfer();
  stream.on('data', (answer) => answers.push(answer));
  const ended = new Promise((resolve, reject) => stream.on('end', resolve).on('error', reject));
  const count = 100;
  for (let i = 0; i < count; ++i) {
    stream.write({ ...rawRequest('fashion', one), id: `${i}`, ...(i === 50 && { model_name: 'trousers' }) });
  }
  stream.end();
  await ended;
  assert.deepStrictEqual(answers.map((answer) => answer.infer_response.id), Array.from({ length: count }, (_, i) => `${i}`));
  answers.forEach((answer, i) => {
    if (i === 50) {
      assert(answer.error_message.includes("'trousers'"), answer.error_message);
    } else {
      assert.strictEqual(answer.error_message, '');
      assert(one.outputs[0].equals(answer.infer_response.raw_output_contents[0]));
    }
  });
  // One that is cut in the middle.
  const cut = client.stub.ModelStreamInfer();
  cut.on('error', () => {});
  cut.on('data', () => cut.cancel());
  const closed = new Promise((resolve) => cut.on('status', resolve));
  for (let i = 0; i < count; ++i) cut.write(rawRequest('fashion', one));
  await closed;
}

async function serverTellsAboutItself(client, address) {
  assert.deepStrictEqual(await client.call('ServerLive'), { live: true });
  assert.deepStrictEqual(await client.call('ServerReady'), { ready: true });
  const server = await client.call('ServerMetadata');
  assert.strictEqual(server.name, 'atoll');
  assert(server.extensions.includes('statistics'));
  const info = await client.call('ModelMetadata', { name: 'fashion' });
  assert.deepStrictEqual(info.versions, ['1']);
  assert.deepStrictEqual(info.inputs.map((tensor) => [tensor.datatype, tensor.shape]), [['INT8', [1, 28, 28, 1]]]);
  const { config } = await client.call('ModelConfig', { name: 'fashion' });
  assert.deepStrictEqual([config.name, config.input[0].data_type, config.input[0].dims], ['fashion', 'TYPE_INT8', [1, 28, 28, 1]]);
  const index = await client.call('RepositoryIndex', { ready: true });
  assert(index.models.some((model) => model.name === 'fashion' && model.state === 'READY'));
  const before = (await client.call('ModelStatistics', { name: 'fashion' })).model_stats[0];
  await client.call('ModelInfer', rawRequest('fashion', await sample(client, 'fashion', FASHION)));
  const after = (await client.call('ModelStatistics', { name: 'fashion' })).model_stats[0];
  assert.strictEqual(after.inference_count, before.inference_count + 1);
  assert(after.inference_stats.compute_infer.ns > before.inference_stats.compute_infer.ns);
  const check = (service) => new Promise((resolve, reject) => new health.Health(
    address, grpc.credentials.createInsecure()).Check({ service }, (error, answer) => (error ? reject(error) : resolve(answer.status))));
  assert.strictEqual(await check(''), 'SERVING');
  assert.strictEqual(await check('inference.GRPCInferenceService'), 'SERVING');
  await assert.rejects(check('else'), (error) => error.code === grpc.status.NOT_FOUND);
}

// Memory of this computer is read once it is known to be a tensor of the model's.
async function sharedMemoryIsOnlyReadForTensors() {
  const server = await start(['--model', `fashion=${FASHION}`, '--allow-shared-memory']);
  const client = new Client(server.address);
  const { INVALID_ARGUMENT } = grpc.status;
  const key = `/atoll_grpc_test_${process.pid}`;
  const file = path.join('/dev/shm', key);
  const huge = 2 ** 40;  // takes nothing while nobody writes into it
  const one = await sample(client, 'fashion', FASHION);
  try {
    fs.writeFileSync(file, one.inputs[0]);
    fs.truncateSync(file, huge);
    await client.call('SystemSharedMemoryRegister', { name: 'r', key, byte_size: huge });
    const part = (bytes) => ({ ...one.info.inputs[0], parameters: {
      shared_memory_region: { string_param: 'r' }, shared_memory_byte_size: { int64_param: bytes } } });
    const request = (change) => ({ model_name: 'fashion', inputs: [part(784)], ...change });
    const right = await client.call('ModelInfer', request());
    assert(one.outputs[0].equals(right.raw_output_contents[0]));
    await client.fails('ModelInfer', request({ inputs: [part(huge)] }), INVALID_ARGUMENT,
                       `has 784 bytes, not ${huge} as`);
    await client.fails('ModelInfer', request({ inputs: [{ ...part(huge), name: 'nothing' }] }), INVALID_ARGUMENT);
    await client.fails('ModelInfer', request({ model_name: 'trousers', inputs: [part(huge)] }), grpc.status.NOT_FOUND);
    await client.fails('ModelInfer', request({ inputs: Array(10000).fill(part(784)) }), INVALID_ARGUMENT,
                       '10000 inputs, more than the 1 of');
    await client.fails('ModelInfer', request({ outputs: Array(10000).fill(one.info.outputs[0]) }), INVALID_ARGUMENT,
                       '10000 outputs, more than the 1 of');
    await client.call('ModelInfer', request());
  } finally {
    fs.rmSync(file, { force: true });
  }
}

async function modelsComeAndGo() {
  const server = await start(['--model-control', 'explicit']);
  const client = new Client(server.address);
  const bytes = fs.readFileSync(FASHION);
  const upload = (contents) => ({ model_name: 'mine', parameters: { 'file:1/model.tflite': { bytes_param: contents } } });
  await client.call('RepositoryModelLoad', upload(bytes));
  await bytesAreThoseOfTheCommand(client, 'mine', FASHION);
  // While it is loaded again, no request fails.
  const one = await sample(client, 'mine', FASHION);
  let loads = 0;
  const loading = (async () => { for (; loads < 5; ++loads) await client.call('RepositoryModelLoad', upload(bytes)); })();
  let count = 0;
  while (loads < 5 || count < 20) {
    const answer = await client.call('ModelInfer', rawRequest('mine', one));
    assert(one.outputs[0].equals(answer.raw_output_contents[0]));
    ++count;
  }
  await loading;
  await client.fails('RepositoryModelLoad', upload(Buffer.from('no model')), grpc.status.INVALID_ARGUMENT);
  await client.fails('RepositoryModelLoad', { model_name: '../x', parameters: { 'file:1/model.tflite': { bytes_param: bytes } } }, grpc.status.INVALID_ARGUMENT);
  await client.fails('RepositoryModelLoad', { model_name: 'y', parameters: { else: { int64_param: 1 } } }, grpc.status.INVALID_ARGUMENT);
  await client.call('ModelInfer', rawRequest('mine', one));
  await client.call('RepositoryModelUnload', { model_name: 'mine' });
  await client.fails('ModelInfer', rawRequest('mine', one), grpc.status.NOT_FOUND);
  // It ends when it is told to, with what is under way.
  await client.call('RepositoryModelLoad', upload(bytes));
  const last = Promise.all(Array.from({ length: 20 }, () => client.call('ModelInfer', rawRequest('mine', one))));
  await last;
  server.kill('SIGTERM');
  assert.strictEqual(await server.ended, 0);
  await client.fails('ServerLive', {}, grpc.status.UNAVAILABLE);
}

async function othersNeedATokenAndTls() {
  const run = (...words) => execFileSync('openssl', words, { cwd: folder, stdio: 'ignore' });
  run('req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-days', '2', '-subj', '/CN=localhost',
      '-addext', 'subjectAltName=DNS:localhost,IP:127.0.0.1', '-keyout', 'key.pem', '-out', 'cert.pem');
  fs.writeFileSync(path.join(folder, 'token'), 'a-token-of-24-characters\n');
  const at = (name) => path.join(folder, name);
  const refused = await start(['--model', `fashion=${FASHION}`], '0.0.0.0:0');
  assert.strictEqual(await refused.ended, 2);
  assert(refused.output.includes('0.0.0.0:0'), refused.output);
  const server = await start(['--model', `fashion=${FASHION}`, '--tls-cert', at('cert.pem'),
                              '--tls-key', at('key.pem'), '--token-file', at('token')], '0.0.0.0:0');
  assert(server.exitCode === null, server.output);
  const port = server.output.match(/gRPC at [^ ]*:(\d+)/)[1];
  const credentials = grpc.credentials.createSsl(fs.readFileSync(at('cert.pem')));
  // From this computer as from elsewhere: the address is everybody's.
  const client = new Client(`localhost:${port}`, credentials);
  const metadata = (token) => {
    const all = new grpc.Metadata();
    all.set('authorization', `Bearer ${token}`);
    return all;
  };
  assert.deepStrictEqual(await client.call('ServerLive'), { live: true });  // as probes ask
  await client.fails('RepositoryIndex', {}, grpc.status.UNAUTHENTICATED, 'Bearer');
  await client.fails('ModelMetadata', { name: 'fashion' }, grpc.status.UNAUTHENTICATED, undefined, {}, metadata('a-token-of-24-charactersx'));
  assert.strictEqual((await client.call('ModelMetadata', { name: 'fashion' }, {}, metadata('a-token-of-24-characters'))).name, 'fashion');
  await new Client(`127.0.0.1:${port}`).fails('ServerLive', {}, grpc.status.UNAVAILABLE);  // without TLS
  const stream = client.stub.ModelStreamInfer();
  const code = await new Promise((resolve) => stream.on('error', (error) => resolve(error.code)).on('data', () => {}));
  assert.strictEqual(code, grpc.status.UNAUTHENTICATED);
}

// gRPC reads a message before it can be asked for the token: all of them have room for so much.
async function strangersTakeNoMemoryWithoutALimit() {
  fs.writeFileSync(path.join(folder, 'token'), 'a-token-of-24-characters\n');
  const server = await start(['--model', `fashion=${FASHION}`, '--token-file', path.join(folder, 'token')]);
  const metadata = new grpc.Metadata();
  metadata.set('authorization', 'Bearer a-token-of-24-characters');
  const client = new Client(server.address);
  const call = (method, request) => client.call(method, request, { deadline: Date.now() + 60000 }, metadata);
  await call('ModelMetadata', { name: 'fashion' });
  const peak = () => parseInt(fs.readFileSync(`/proc/${server.pid}/status`, 'utf8').match(/VmHWM:\s+(\d+)/)[1], 10) / 1024;
  const before = peak();
  const head = Buffer.from([0, 4, 0, 0, 0]);  // 64 MiB will come
  const part = Buffer.alloc(60 << 20);
  const strangers = Array.from({ length: 24 }, () => {  // 1440 MiB in all
    const session = http2.connect(`http://${server.address}`);
    session.on('error', () => {});
    const stream = session.request({ ':method': 'POST', ':path': '/inference.GRPCInferenceService/ModelInfer',
                                     'content-type': 'application/grpc', te: 'trailers' });
    stream.on('error', () => {});
    stream.write(head);
    stream.write(part);
    return session;
  });
  // While they send, others may be refused, too; then these wait, and the others are served.
  let latest = -1;
  for (let now = peak(); now > latest + 1 || now < before + 64; now = peak()) {
    latest = now;
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  const request = { model_name: 'fashion', raw_input_contents: [Buffer.alloc(784)],
                    inputs: [{ name: 'image', datatype: 'INT8', shape: [1, 28, 28, 1] }] };
  for (let good = 0, bad = 0; good < 10;) {
    try {
      await call('ModelInfer', request);
      ++good;
    } catch (error) {
      assert.strictEqual(error.code, grpc.status.RESOURCE_EXHAUSTED, error.message);
      assert(++bad < 100, 'nobody is served');
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
  }
  // gRPC reads on while it ends calls, so that it has more than 256 MiB for a while.
  if (process.env.ATOLL_SANITIZED !== '1') {
    assert(peak() < before + 600, `${before} MiB, then ${peak()} MiB`);
  }
  for (const session of strangers) session.destroy();
}

async function main() {
  const words = ['--model', `fashion=${FASHION}`, '--max-body', `${8 << 20}`,
                 '--max-model-bytes', `${8 << 20}`];
  const shared = path.join(process.env.ATOLL_SHARED_DIR, 'models');
  const more = { kws: 'mlperf_tiny_kws_int8.tflite', vww: 'mlperf_tiny_vww_96_int8.tflite',
                 movenet: 'movenet_single_pose_lightning_ptq.tflite', ssd: 'ssd_mobilenet_v1.tflite' };
  const found = Object.entries(more).map(([name, file]) => [name, path.join(shared, file)])
    .filter(([, file]) => fs.existsSync(file));
  for (const [name, file] of found) words.push('--model', `${name}=${file}`);
  const server = await start(words);
  const client = new Client(server.address);
  await serverTellsAboutItself(client, server.address);
  for (const [name, file] of [['fashion', FASHION], ...found]) await bytesAreThoseOfTheCommand(client, name, file);
  await errorsHaveCodes(client);
  await streamsAnswerInOrder(client);
  await sharedMemoryIsOnlyReadForTensors();
  await modelsComeAndGo();
  await othersNeedATokenAndTls();
  await strangersTakeNoMemoryWithoutALimit();
  console.log(`all is as it should be, with ${1 + found.length} models`);
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
}).finally(() => {
  for (const child of running) child.kill('SIGKILL');
  fs.rmSync(folder, { recursive: true, force: true });
  process.exit();
});

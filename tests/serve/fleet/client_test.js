// SPDX-License-Identifier: Apache-2.0
//
// A fleet as clients of NATS in another language see it (@nats-io of npm, which shares no code with
// nats.c): they submit jobs and read results, put models that workers fetch, get those that 'atoll
// fleet' put, find workers as services, and watch what these say of themselves.
'use strict';
const assert = require('assert');
const crypto = require('crypto');
const fs = require('fs');
const os = require('os');
const path = require('path');
const { spawn, spawnSync } = require('child_process');

const modules = path.join(process.env.ATOLL_NODE_MODULES, 'node_modules');
const server = process.env.ATOLL_NATS_SERVER;
if (!fs.existsSync(modules) || !fs.existsSync(server)) {
  console.log('ATOLL-SKIPPED: nats-server, or NATS for Node, which npm brings');
  process.exit(0);
}
const from = require('module').createRequire(path.join(modules, 'test.js'));
const { connect } = from('@nats-io/transport-node');
const { headers } = from('@nats-io/nats-core');
const { jetstream, jetstreamManager } = from('@nats-io/jetstream');
const { Kvm } = from('@nats-io/kv');
const { Objm } = from('@nats-io/obj');
const { Svcm } = from('@nats-io/services');

const source = process.env.ATOLL_SOURCE_DIR;
const fashion = path.join(source, 'models/fashion/fashion_int8.tflite');
// In memory if there is room, so that it does not matter how slow the disk is.
const memory = '/dev/shm';
const hasRoom = () => {
  try {
    fs.accessSync(memory, fs.constants.W_OK);
    const { bavail, bsize } = fs.statfsSync(memory);
    return bavail * bsize > 2 ** 30;
  } catch {
    return false;
  }
};
const folder = fs.mkdtempSync(path.join(hasRoom() ? memory : os.tmpdir(), 'fleet'));
const LONG_MS = 120_000;
const children = [];

const eventually = async (what, name) => {
  for (let i = 0; i < 1200; ++i) {
    const found = await what();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${name} did not happen`);
};
// nats-server, at a port that it has chosen.
const serve = async () => {
  const config = path.join(folder, 'nats.conf');
  fs.writeFileSync(config, `listen: "127.0.0.1:-1"
ports_file_dir: "${folder}"
jetstream { store_dir: "${folder}/store", max_mem: 64MB, max_file: 20GB }\n`);
  const child = spawn(server, ['-c', config], { stdio: 'ignore' });
  children.push(child);
  const file = path.join(folder, `${path.basename(server)}_${child.pid}.ports`);
  const ports = await eventually(() => {
    try {
      return JSON.parse(fs.readFileSync(file, 'utf8'));
    } catch {
      return null;  // not there yet, or not all of it
    }
  }, 'the server');
  return ports.nats[0];
};
const run = (...words) => {
  const done = spawnSync(words[0], words.slice(1), { encoding: 'utf8' });
  assert.strictEqual(done.status, 0, `${words}: ${done.stderr}`);
  return done.stdout;
};
// The outputs of `atoll run` for these bytes.
const expected = (data) => {
  fs.writeFileSync(path.join(folder, 'in'), data);
  run(process.env.ATOLL_COMMAND, 'run', fashion, '--device', 'emu', '--input',
      `0=${path.join(folder, 'in')}`, '--output-dir', folder);
  return fs.readFileSync(path.join(folder, 'out_0.raw'));
};
const jobId = () => crypto.randomBytes(16).toString('base64url');
// The bytes behind the head of JSON.
const binary = (message) =>
  Buffer.from(message.data).subarray(Number(message.headers.get('Inference-Header-Content-Length')));

async function main() {
  const url = await serve();
  const connection = await eventually(
      () => connect({ servers: url }).catch(() => null), 'a connection');
  children.push(spawn(process.env.ATOLL_FLEET,
                      ['worker', '--nats', url, '--id', 'w1', '--device', 'emu'],
                      { stdio: 'ignore' }));

  // Models: from here to the worker, and from 'atoll fleet' to here.
  const js = jetstream(connection, { timeout: LONG_MS });
  const manager = await jetstreamManager(connection, { timeout: LONG_MS });
  await eventually(() => manager.streams.info('OBJ_atoll_models').catch(() => null), 'the bucket');
  const objects = await new Objm(js).open('atoll_models');
  const model = fs.readFileSync(fashion);
  await objects.putBlob({ name: 'fashion/1/model.tflite' }, model);
  const crops = path.join(source, 'models/crops/crops_int8.tflite');
  run(process.env.ATOLL_FLEET, 'models', 'put', '--nats', url, 'crops', crops, '--as', '2', '--compile-for', 'emu');
  const got = await objects.getBlob('crops/2/model.tflite');
  assert(Buffer.from(got).equals(fs.readFileSync(crops)), 'crops came back as it was');
  const names = [];
  for await (const info of await objects.list()) {
    if (!/^crops\/2\/atoll-1-[-0-9x]+isa\d+\.tflite$/.test(info.name)) {
      names.push(info.name);
      continue;
    }
    // Of which bytes it was made.
    const digest = crypto.createHash('sha256').update(fs.readFileSync(crops)).digest('base64url');
    const { headers } = await objects.info(info.name);
    assert.deepStrictEqual(headers.values('Atoll-Made-From'), [`SHA-256=${digest}=`]);
    names.push('compiled');
  }
  assert.deepStrictEqual(names.sort(), ['compiled', 'crops/2/model.tflite', 'fashion/1/model.tflite']);
  const placements = await new Kvm(js).open('atoll_placement');
  await placements.put('default', JSON.stringify(['fashion']));

  // What the worker says of itself.
  const workers = await new Kvm(js).open('atoll_workers');
  const watch = await workers.watch();
  let record;
  for await (const entry of watch) {
    if (entry.operation !== 'PUT') continue;
    assert.strictEqual(entry.key, 'w1');
    record = entry.json();
    if (record.models.length === 1) break;
  }
  assert.strictEqual(record.models[0].name, 'fashion');
  assert.strictEqual(record.models[0].sha256,
                     crypto.createHash('sha256').update(model).digest('hex'));
  assert.deepStrictEqual(record.models[0].inputs,
                         [{ name: 'image', datatype: 'INT8', shape: [1, 28, 28, 1] }]);

  // Frames.
  const data = crypto.createHash('sha512').update('x').digest();
  const pixels = Buffer.concat(Array(13).fill(data)).subarray(0, 784);
  const wanted = expected(pixels);
  const raw = headers();
  raw.set('Inference-Header-Content-Length', '0');
  const answer = await connection.request('atoll.infer.fashion', pixels,
                                          { headers: raw, timeout: LONG_MS });
  assert(binary(answer).equals(wanted));
  assert.strictEqual(answer.headers.get('Atoll-Worker'), 'w1');

  // Jobs.
  const jobs = [];
  for (let i = 0; i < 20; ++i) {
    const job = jobId();
    jobs.push(job);
    await js.publish('atoll.work.fashion.1', pixels, { msgID: job, headers: raw });
  }
  for (const job of jobs) {
    const result = await eventually(
        () => manager.direct.getMessage('ATOLL_RESULT', { last_by_subj: `atoll.result.${job}` })
                  .catch(() => null), 'a result');
    assert(Buffer.from(result.data)
               .subarray(Number(result.header.get('Inference-Header-Content-Length')))
               .equals(wanted));
  }
  // One each, which nobody can write again.
  assert.strictEqual((await manager.streams.info('ATOLL_RESULT')).state.messages, 20);
  await assert.rejects(js.publish(`atoll.result.${jobs[0]}`, 'mine'));
  await eventually(async () => (await manager.streams.info('ATOLL_WORK')).state.messages === 0,
                   'an empty queue');

  // A service, as these clients know them.
  const services = new Svcm(connection).client();
  // They stop to listen after a while, in which nobody may have said anything.
  const list = (ask) => eventually(async () => {
    const all = [];
    for await (const one of await ask()) all.push(one);
    return all.length > 0 ? all : null;
  }, 'an answer of a service');
  const ping = await list(() => services.ping('atoll'));
  assert.deepStrictEqual(ping.map((one) => one.id), ['w1']);
  const info = await list(() => services.info('atoll', 'w1'));
  assert.strictEqual(info[0].endpoints[0].subject, 'atoll.infer.fashion');
  const stats = await list(() => services.stats('atoll'));
  assert.strictEqual(stats[0].endpoints[0].num_requests, 1);
  assert.strictEqual(stats[0].endpoints[0].num_errors, 0);
  await connection.close();
}

main()
    .then(() => 0, (error) => {
      console.log(error);
      return 1;
    })
    .then((code) => {
      for (const child of children) child.kill('SIGKILL');
      fs.rmSync(folder, { recursive: true, force: true });
      process.exit(code);
    });

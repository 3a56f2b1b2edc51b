// SPDX-License-Identifier: Apache-2.0
//
// A kubelet, by gRPC for Node, that atoll-device-plugin takes for the real one: what it is told, and
// what containers get. Environment: ATOLL_COMMAND, ATOLL_DEVICE_PLUGIN, ATOLL_SOURCE_DIR, and
// ATOLL_NODE_MODULES, the folder with node_modules.
'use strict';
const assert = require('assert');
const { spawn, spawnSync } = require('child_process');
const fs = require('fs');
const os = require('os');
const path = require('path');

const { eventually, grpc, load } = require('../testing');

const SOURCE = process.env.ATOLL_SOURCE_DIR;
const MODEL = path.join(SOURCE, 'models/fashion/fashion_int8.tflite');
const { v1beta1 } = load(path.join(SOURCE, 'serve/kubernetes/device_plugin.proto'),
                         { keepCase: true, longs: Number, defaults: true });

const folder = fs.mkdtempSync(path.join(os.tmpdir(), 'kubelet'));
const plugins = path.join(folder, 'device-plugins');
const brokers = path.join(folder, 'broker');
fs.mkdirSync(plugins);
fs.mkdirSync(brokers);
const socket = path.join(brokers, 'broker.sock');
const running = [];

function start(program, ...words) {
  const child = spawn(program, words, { stdio: ['ignore', 'pipe', 'inherit'] });
  child.output = '';
  child.stdout.on('data', (text) => { child.output += text; });
  child.ended = new Promise((resolve) => child.on('exit', (code) => resolve(code)));
  running.push(child);
  return child;
}

async function startBroker() {
  const broker = start(process.env.ATOLL_COMMAND, 'broker', '--device', 'emu', '--socket', socket);
  await eventually(() => broker.output.includes('Ctrl-C'), 'the start of the broker');
  return broker;
}

class Kubelet {
  constructor() {
    this.registered = [];
    this.server = new grpc.Server();
    this.server.addService(v1beta1.Registration.service, {
      Register: (call, callback) => {
        this.registered.push(call.request);
        callback(null, {});
      },
    });
  }
  static async start() {
    const kubelet = new Kubelet();
    await new Promise((resolve, reject) => kubelet.server.bindAsync(
      `unix:${plugins}/kubelet.sock`, grpc.ServerCredentials.createInsecure(),
      (error) => (error ? reject(error) : resolve())));
    return kubelet;
  }
}

class Plugin {
  constructor() {
    this.client = new v1beta1.DevicePlugin(`unix:${plugins}/atoll.sock`,
                                           grpc.credentials.createInsecure());
  }
  call(name, request) {
    return new Promise((resolve, reject) => this.client[name](
      request, (error, response) => (error ? reject(error) : resolve(response))));
  }
  // Lists as they come.
  watch() {
    const lists = [];
    const stream = this.client.ListAndWatch({});
    stream.on('data', (list) => lists.push(list.devices));
    stream.on('error', () => {});
    lists.end = () => stream.cancel();
    return lists;
  }
}

const health = (list) => list.map((device) => device.health).join(' ');

async function main() {
  let broker = await startBroker();
  let kubelet = await Kubelet.start();
  const program = start(process.env.ATOLL_DEVICE_PLUGIN, '--plugin-dir', plugins,
                        '--broker', socket, '--shares', '3');

  // It registers.
  const request = await eventually(() => kubelet.registered[0], 'the registration');
  assert.deepStrictEqual(
    [request.version, request.endpoint, request.resource_name],
    ['v1beta1', 'atoll.sock', 'atoll.dev/edgetpu']);
  assert(request.options.get_preferred_allocation_available);
  let plugin = new Plugin();
  const options = await plugin.call('GetDevicePluginOptions', {});
  assert.deepStrictEqual(options,
                         { pre_start_required: false, get_preferred_allocation_available: true });

  // The whole list comes at once, to each who asks, and whenever it has changed.
  const lists = plugin.watch();
  const others = plugin.watch();
  const first = await eventually(() => lists[0], 'the first list');
  assert.deepStrictEqual(first.map((device) => device.ID), ['broker-0', 'broker-1', 'broker-2']);
  assert.strictEqual(health(first), 'Healthy Healthy Healthy');
  await eventually(() => others[0], 'the first list of another stream');
  broker.kill('SIGKILL');
  await broker.ended;
  await eventually(() => health(lists[lists.length - 1]) === 'Unhealthy Unhealthy Unhealthy',
                   'the list without the broker');
  await eventually(() => health(others[others.length - 1]).startsWith('Unhealthy'),
                   'the same on the other stream');
  others.end();
  broker = await startBroker();
  await eventually(() => health(lists[lists.length - 1]) === 'Healthy Healthy Healthy',
                   'the list with the broker');

  // Containers.
  const preferred = await plugin.call('GetPreferredAllocation', { container_requests: [
    { available_deviceIDs: ['broker-1', 'broker-2'], must_include_deviceIDs: ['broker-2'],
      allocation_size: 1 }] });
  assert.deepStrictEqual(preferred.container_responses[0].deviceIDs, ['broker-2']);
  const allocated = await plugin.call('Allocate', { container_requests: [
    { devicesIDs: ['broker-0'] }, { devicesIDs: ['broker-1', 'broker-2'] }] });
  assert.strictEqual(allocated.container_responses.length, 2);
  for (const grant of allocated.container_responses) {
    assert.strictEqual(grant.envs.ATOLL_DEVICE, 'broker:/run/atoll/broker.sock');
    assert.strictEqual(grant.envs.ATOLL_BROKER, '/run/atoll/broker.sock');
    assert.deepStrictEqual(grant.mounts, [
      { container_path: '/run/atoll', host_path: brokers, read_only: true }]);
    assert.deepStrictEqual(grant.devices, []);
  }
  await assert.rejects(
    plugin.call('Allocate', { container_requests: [{ devicesIDs: ['broker-7'] }] }),
    (error) => error.code === grpc.status.NOT_FOUND && error.details.includes("'broker-7'"));
  await assert.rejects(plugin.call('Allocate', { container_requests: [{ devicesIDs: [] }] }),
                       (error) => error.code === grpc.status.INVALID_ARGUMENT);
  await plugin.call('PreStartContainer', { devicesIDs: ['broker-0'] });
  seeFromAContainer(allocated.container_responses[0]);

  // A kubelet that starts again removes what is in its folder.
  await new Promise((resolve) => kubelet.server.tryShutdown(resolve));
  for (const file of fs.readdirSync(plugins)) fs.rmSync(path.join(plugins, file));
  plugin.client.close();
  kubelet = await Kubelet.start();
  await eventually(() => kubelet.registered[0], 'the registration with the new kubelet');
  plugin = new Plugin();
  const again = plugin.watch();
  await eventually(() => again[0] && health(again[0]).startsWith('Healthy'),
                   'the list for the new kubelet');

  // It goes when it is asked to, and leaves nothing.
  program.kill('SIGTERM');
  assert.strictEqual(await program.ended, 0);
  assert(!fs.existsSync(path.join(plugins, 'atoll.sock')));
  plugin.client.close();
  kubelet.server.forceShutdown();
  console.log('the kubelet saw what it should see');
}

// With the mounts and the environment of a container, and nothing else of the node's /run, a program
// that knows nothing of it finds the broker.
function seeFromAContainer(grant) {
  if (spawnSync('unshare', ['--mount', 'true']).status !== 0) {
    console.log('(no mount namespaces here: a container was not tried)');
    return;
  }
  const { host_path: host, container_path: inside } = grant.mounts[0];
  const script = `mount --make-rprivate / && mkdir '${folder}/hidden' && ` +
      `mount --bind '${host}' '${folder}/hidden' && mount -t tmpfs none /run && ` +
      `mkdir -p '${inside}' && mount --bind '${folder}/hidden' '${inside}' && ` +
      `exec '${process.env.ATOLL_COMMAND}' benchmark '${MODEL}' --runs 1 --json`;
  const done = spawnSync('unshare', ['--mount', 'sh', '-c', script],
                         { encoding: 'utf8', env: { PATH: process.env.PATH, ...grant.envs } });
  assert.strictEqual(done.status, 0, done.stderr);
  assert(JSON.parse(done.stdout).device.name.startsWith('broker'), done.stdout);
}

main().catch((error) => {
  console.error(error);
  process.exitCode = 1;
}).finally(() => {
  for (const child of running) child.kill('SIGKILL');
  fs.rmSync(folder, { recursive: true, force: true });
  process.exit();
});

// SPDX-License-Identifier: Apache-2.0
//
// What tests by gRPC for Node have in common: the packages, which npm brings to
// ATOLL_NODE_MODULES/node_modules, and waiting. Without the packages the program ends as skipped.
'use strict';
const fs = require('fs');
const path = require('path');

const modules = path.join(process.env.ATOLL_NODE_MODULES, 'node_modules');
if (!fs.existsSync(modules)) {
  console.log('ATOLL-SKIPPED: gRPC for Node, which npm brings');
  process.exit(0);
}
exports.grpc = require(path.join(modules, '@grpc/grpc-js'));
const loader = require(path.join(modules, '@grpc/proto-loader'));

// The packages that a file of messages defines.
exports.load = (file, options) =>
  exports.grpc.loadPackageDefinition(loader.loadSync(file, options));

// Waits, a minute at most, until `what` gives something, and gives that.
exports.eventually = async (what, name) => {
  for (let i = 0; i < 1200; ++i) {
    const found = what();
    if (found) return found;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`${name} did not happen`);
};

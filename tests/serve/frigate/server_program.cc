// SPDX-License-Identifier: Apache-2.0
//
// usage: frigate-server ENDPOINT FOLDER DEVICE BUDGET_MS [MODEL]
//
// The server for Frigate as a program of its own, to be killed by a test. Says where it listens,
// and what there is to say, a line each.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "serve/frigate/zmq_server.h"

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  sigset_t stops;
  sigemptyset(&stops);
  sigaddset(&stops, SIGTERM);
  sigprocmask(SIG_BLOCK, &stops, nullptr);  // on all threads; taken below
  const auto say = [](const std::string& line) {
    std::printf("%s\n", line.c_str());
    std::fflush(stdout);
  };
  auto device = atollpp::Delegate::Open(argv[3]);
  if (!device) return say(device.message()), 1;
  atollrt::ZmqServerOptions options;
  options.endpoints = {argv[1]};
  options.folder = argv[2];
  options.device = *device;
  options.budget = std::chrono::milliseconds(std::atoi(argv[4]));
  if (argc > 5) options.default_model = argv[5];
  options.log = say;
  auto server = atollrt::ZmqServer::Start(std::move(options));
  if (!server.ok()) return say(server.status().message()), 1;
  say("listens at " + (*server)->endpoints()[0]);
  int signal = 0;
  sigwait(&stops, &signal);
  return 0;
}

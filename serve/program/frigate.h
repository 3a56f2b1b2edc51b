// SPDX-License-Identifier: Apache-2.0
//
// What `atoll-serve --zmq` and `--deepstack` start: detectors for programs that watch cameras
// (serve/frigate, docs/frigate.md), on one device of their own.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "atoll/status.h"
#include "serve/access/access.h"

namespace atollserve {

struct FrigateOptions {
  std::vector<std::string> zmq;        // endpoints
  std::string zmq_model;               // for clients that ask for none; "": no such model
  std::string zmq_folder;              // of models that they send; "": DefaultZmqFolder
  std::string zmq_key, zmq_clients;    // files of CURVE keys; "": none
  std::vector<std::string> deepstack;  // ADDRESS:PORT or unix:PATH
  // NAME=FILE[,LABELS], for DeepStack's clients, the first one for those that name none.
  std::vector<std::string> detectors;

  bool wanted() const { return !zmq.empty() || !deepstack.empty(); }
};

class FrigateFront {
 public:
  // Listens when it returns, with a line on stdout for each place. Errors of options say which.
  static atollrt::Result<std::unique_ptr<FrigateFront>> Start(const FrigateOptions& options,
                                                              const std::string& device,
                                                              int threads, const Access& access);
  virtual ~FrigateFront() = default;
  // Answers what has come, not longer than `timeout`.
  virtual void Drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace atollserve

// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "runtime/base/monotonic.h"
#include "runtime/base/request_cost.h"

namespace atollrt {

// Takes the bytes and times of RequestCost while those of a request move. One thread.
class LinkMeter {
 public:
  void Start() {
    *this = {};
    start_ns_ = last_sent_ns_ = MonotonicNs();
  }
  void Sent(uint64_t bytes) {
    sent_ += bytes;
    last_sent_ns_ = MonotonicNs();
    first_received_ns_ = 0;
  }
  void Received(uint64_t bytes) {
    received_ += bytes;
    if (first_received_ns_ == 0) first_received_ns_ = MonotonicNs();
  }
  // By the host's CPU, from or to memory of callers.
  void Copied(uint64_t bytes) { copied_ += bytes; }
  // The bytes, and all times but queue_ns.
  void Stop(RequestCost* cost) const {
    const int64_t now_ns = MonotonicNs();
    const int64_t received_ns = first_received_ns_ != 0 ? first_received_ns_ : now_ns;
    cost->bytes_to_device = sent_;
    cost->bytes_from_device = received_;
    cost->bytes_copied = copied_;
    cost->link_out_ns = last_sent_ns_ - start_ns_;
    cost->compute_ns = received_ns - last_sent_ns_;
    cost->link_in_ns = now_ns - received_ns;
  }

 private:
  uint64_t sent_ = 0;
  uint64_t received_ = 0;
  uint64_t copied_ = 0;
  int64_t start_ns_ = 0;
  int64_t last_sent_ns_ = 0;
  int64_t first_received_ns_ = 0;  // after that; 0: none yet
};

}  // namespace atollrt

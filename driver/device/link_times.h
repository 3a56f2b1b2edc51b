// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "runtime/base/monotonic.h"
#include "runtime/base/request_cost.h"

namespace atollrt {

// Takes the times of RequestCost while the bytes of a request move. One thread.
class LinkTimes {
 public:
  void Start() {
    start_ns_ = last_sent_ns_ = MonotonicNs();
    first_received_ns_ = 0;
  }
  void Sent() {
    last_sent_ns_ = MonotonicNs();
    first_received_ns_ = 0;
  }
  void Received() {
    if (first_received_ns_ == 0) first_received_ns_ = MonotonicNs();
  }
  // All but queue_ns, which it leaves.
  void Stop(RequestCost* cost) const {
    const int64_t now_ns = MonotonicNs();
    const int64_t received_ns = first_received_ns_ != 0 ? first_received_ns_ : now_ns;
    cost->link_out_ns = last_sent_ns_ - start_ns_;
    cost->compute_ns = received_ns - last_sent_ns_;
    cost->link_in_ns = now_ns - received_ns;
  }

 private:
  int64_t start_ns_ = 0;
  int64_t last_sent_ns_ = 0;
  int64_t first_received_ns_ = 0;  // after that; 0: none yet
};

}  // namespace atollrt

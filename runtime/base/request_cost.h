// SPDX-License-Identifier: Apache-2.0
//
// What one request to a device cost: said by the driver, added up by the interpreter, reported to
// the user.
#pragma once

#include <cstdint>

namespace atollrt {

struct RequestCost {
  uint64_t device_cycles = 0;      // of its program, the link included; modelled, if emulated
  double device_seconds = 0;       // modelled latency: these cycles and the host's work for it
  uint64_t bytes_to_device = 0;    // everything that was sent for it, an upload included
  uint64_t bytes_from_device = 0;  // outputs and events
  uint64_t bytes_copied = 0;       // that the host's CPU copied for the link, where it need not
  uint64_t parameter_bytes = 0;    // the part of bytes_to_device that was parameters
  // Measured on the host.
  int64_t queue_ns = 0;     // until the device was free for it
  int64_t link_out_ns = 0;  // until the last byte was sent
  int64_t compute_ns = 0;   // until the first byte came back
  int64_t link_in_ns = 0;   // until the last one had come

  RequestCost& operator+=(const RequestCost& other) {
    device_cycles += other.device_cycles;
    device_seconds += other.device_seconds;
    bytes_to_device += other.bytes_to_device;
    bytes_from_device += other.bytes_from_device;
    bytes_copied += other.bytes_copied;
    parameter_bytes += other.parameter_bytes;
    queue_ns += other.queue_ns;
    link_out_ns += other.link_out_ns;
    compute_ns += other.compute_ns;
    link_in_ns += other.link_in_ns;
    return *this;
  }
};

}  // namespace atollrt

// SPDX-License-Identifier: Apache-2.0
//
// FakeUsbfs: a USB bus for a program that talks to the kernel, which here means to umockdev: the
// devices of a made-up sysfs and their nodes, whose ioctls are answered as Linux's usbfs answers
// them. Behind each endpoint is a queue that the test fills, reads or breaks; libusb itself and
// everything above it is real.
//
// The library libumockdev-preload must come before the C library. One FakeUsbfs at a time; any
// thread may call.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "driver/usb/usb_bus.h"

namespace atollrt {

// One device on port 2 of bus 1, with bulk endpoints 01, 81, 82 and interrupt endpoint 83.
class FakeUsbfs {
 public:
  static constexpr size_t kPacketBytes = 512;  // of the bulk endpoints

  using Bytes = std::vector<uint8_t>;

  struct Endpoint {
    // OUT: what the device has taken; how much more it will take before it only says "not now".
    Bytes taken;
    size_t room = SIZE_MAX;
    // IN: packets to be sent, each of at most a packet's size.
    std::deque<Bytes> packets;
    // The next transfers fail with this errno (EPIPE: stall, until the halt is cleared; EPROTO).
    int error = 0;
    int halts_cleared = 0;
    size_t most_in_flight = 0;  // transfers
    size_t largest = 0;         // transfer, in bytes
  };

  FakeUsbfs();
  ~FakeUsbfs();

  void Plug(UsbId id);
  void Unplug();
  // Likewise, but nobody is told, as where no udevd runs.
  void Vanish();
  // The system does not say anything; open devices stop working.
  void Die();

  // `use` sees and changes an endpoint; what it does takes effect soon.
  void At(uint8_t endpoint, const std::function<void(Endpoint&)>& use);
  // Cuts bytes into packets; a last one that is full needs an empty one behind it if it is to end
  // the transfer.
  void Send(uint8_t endpoint, std::span<const uint8_t> bytes);

  // Answers control requests: the bytes of the answer, -errno, or kSilence for nothing at all.
  static constexpr int kSilence = -1'000'000;
  using ControlHandler = std::function<int(const ControlSetup&, std::span<uint8_t>)>;
  void OnControl(ControlHandler handler);

  // A device with a mind of its own: called before each look for transfers that can go on. It must
  // not call back.
  using Endpoints = std::map<uint8_t, Endpoint>;
  void OnLook(std::function<void(Endpoints&)> device);

  // Nobody but root may open the device's node.
  void Forbid();
  void set_claim_error(int error);   // errno of claims; 0: they succeed
  void set_reset_error(int error);   // errno of port resets
  void set_submit_error(int error);  // errno of submissions while others are in flight
  void set_gives_memory(bool gives);
  void set_keeps_cancelled(bool keeps);  // cancelled transfers are not given back while this is set

  int transfers_in_flight();
  int memory_maps();         // of device memory, at this moment
  std::string node() const;  // where the device's node really is

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace atollrt

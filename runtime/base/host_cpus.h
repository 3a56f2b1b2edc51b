// SPDX-License-Identifier: Apache-2.0
//
// How many CPUs of this machine the process may use: those of its affinity mask, but no more than
// the quota of its control group pays for. std::thread::hardware_concurrency() knows the mask at
// best, so that a container with a quota of one CPU would get as many threads as the machine has
// CPUs, which then wait for each other.
#pragma once

#include <span>
#include <string>

namespace atollrt {

struct HostCpus {
  static constexpr int kMostCores = 16;
  int logical = 1;  // threads that can run at one time
  // Of these: what is worth a thread, as siblings share the multipliers of a core. Counted no
  // further than kMostCores.
  int cores = 1;
};

// Of this process, when first called. Thread-safe.
const HostCpus& GetHostCpus();

// Of a process that may run on CPUs of these numbers, by the files below `root` ("": this machine):
// /sys/devices/system/cpu, /proc/self/cgroup and /sys/fs/cgroup of either version. What cannot be
// read limits nothing.
HostCpus CountHostCpus(std::span<const int> allowed, const std::string& root);

}  // namespace atollrt

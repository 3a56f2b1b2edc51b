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
  // Cores that these threads run on, at most kMostCores: what is worth a thread of a pool, since
  // the threads of one core share its multipliers.
  int cores = 1;
};

// The CPUs of this process, counted at the first call. Thread-safe.
const HostCpus& GetHostCpus();

// Counts the CPUs whose numbers are `allowed` by the files below `root` ("" for this machine):
// /sys/devices/system/cpu, /proc/self/cgroup and /sys/fs/cgroup of either version. Files that
// cannot be read limit nothing.
HostCpus CountHostCpus(std::span<const int> allowed, const std::string& root);

}  // namespace atollrt

// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_cpus.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <vector>

namespace atollrt {
namespace {

// The beginning of a small file; empty if it cannot be read.
std::string ReadSmallFile(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return {};
  char bytes[4096];
  const ssize_t size = read(fd, bytes, sizeof(bytes));
  close(fd);
  return size > 0 ? std::string(bytes, static_cast<size_t>(size)) : std::string();
}

// CPUs that `quota` microseconds in every `period` pay for, rounded up; 0: no limit.
int CpusOf(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return 0;
  const double cpus = quota / period;
  return cpus > 1e6 ? 0 : std::max(1, static_cast<int>(cpus + 0.999));
}

// cpu.max: "max 100000" or "150000 100000"
int QuotaOfVersion2(const std::string& folder) {
  const std::string text = ReadSmallFile(folder + "/cpu.max");
  char* end = nullptr;
  const double quota = std::strtod(text.c_str(), &end);
  return CpusOf(quota, std::strtod(end, nullptr));
}

int QuotaOfVersion1(const std::string& folder) {
  return CpusOf(std::strtod(ReadSmallFile(folder + "/cpu.cfs_quota_us").c_str(), nullptr),
                std::strtod(ReadSmallFile(folder + "/cpu.cfs_period_us").c_str(), nullptr));
}

// The tightest quota of a group and all that contain it, below a mount point.
int TightestQuota(const std::string& mount, std::string group,
                  int (*quota_of)(const std::string&)) {
  int tightest = 0;
  for (;;) {
    const int quota = quota_of(mount + group);
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
    const size_t slash = group.rfind('/');
    if (group.empty() || slash == std::string::npos) return tightest;
    group.resize(slash);
  }
}

// Lines "0::/group" (version 2) and "4:cpu,cpuacct:/group" (version 1).
int ControlGroupQuota(const std::string& root) {
  const std::string text = ReadSmallFile(root + "/proc/self/cgroup");
  int tightest = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    const size_t first = line.find(':');
    const size_t second = line.find(':', first + 1);
    if (first == std::string_view::npos || second == std::string_view::npos) continue;
    const std::string controllers =
        "," + std::string(line.substr(first + 1, second - first - 1)) + ",";
    std::string group(line.substr(second + 1));
    if (group == "/") group.clear();
    int quota = 0;
    if (controllers == ",,") {
      quota = TightestQuota(root + "/sys/fs/cgroup", group, QuotaOfVersion2);
    } else if (controllers.find(",cpu,") != std::string::npos) {
      quota = TightestQuota(root + "/sys/fs/cgroup/cpu", group, QuotaOfVersion1);
    }
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  }
  return tightest;
}

}  // namespace

HostCpus CountHostCpus(std::span<const int> allowed, const std::string& root) {
  std::vector<std::string> siblings;  // of the CPUs seen, a text per core
  int without_text = 0;
  for (const int cpu : allowed) {
    if (static_cast<int>(siblings.size()) + without_text == HostCpus::kMostCores) break;
    std::string text = ReadSmallFile(root + "/sys/devices/system/cpu/cpu" + std::to_string(cpu) +
                                     "/topology/thread_siblings_list");
    if (text.empty()) {
      ++without_text;
    } else if (std::find(siblings.begin(), siblings.end(), text) == siblings.end()) {
      siblings.push_back(std::move(text));
    }
  }
  HostCpus cpus;
  cpus.logical = std::max(1, static_cast<int>(allowed.size()));
  cpus.cores = std::max(1, static_cast<int>(siblings.size()) + without_text);
  if (const int quota = ControlGroupQuota(root); quota > 0) {
    cpus.logical = std::min(cpus.logical, quota);
    cpus.cores = std::min(cpus.cores, quota);
  }
  return cpus;
}

const HostCpus& GetHostCpus() {
  static const HostCpus cpus = [] {
    std::vector<int> allowed;
    cpu_set_t mask;
    if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
      for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(cpu, &mask)) allowed.push_back(cpu);
      }
    } else {  // more CPUs than the mask has bits
      for (unsigned cpu = 0; cpu < std::thread::hardware_concurrency(); ++cpu) {
        allowed.push_back(static_cast<int>(cpu));
      }
    }
    return CountHostCpus(allowed, "");
  }();
  return cpus;
}

}  // namespace atollrt

// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/host_cpus.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace atollrt {
namespace {

// A machine as its files show it.
class HostCpusTest : public testing::Test {
 protected:
  HostCpusTest() {
    std::string name = (std::filesystem::temp_directory_path() / "host_cpus_XXXXXX").string();
    root_ = mkdtemp(name.data());
  }
  ~HostCpusTest() override { std::filesystem::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  void Cpu(int number, const std::string& siblings) {
    Write("/sys/devices/system/cpu/cpu" + std::to_string(number) + "/topology/thread_siblings_list",
          siblings + "\n");
  }
  HostCpus Count(const std::vector<int>& allowed) const { return CountHostCpus(allowed, root_); }

  std::string root_;
};

TEST_F(HostCpusTest, WithoutFilesEveryAllowedCpuIsACore) {
  EXPECT_EQ(Count({0, 1, 2}).logical, 3);
  EXPECT_EQ(Count({0, 1, 2}).cores, 3);
  EXPECT_EQ(Count({}).logical, 1);
  EXPECT_EQ(Count({}).cores, 1);
}

TEST_F(HostCpusTest, SiblingsAreOneCore) {
  for (const int cpu : {0, 1, 2, 3}) Cpu(cpu, cpu % 2 == 0 ? "0,2" : "1,3");
  EXPECT_EQ(Count({0, 1, 2, 3}).logical, 4);
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 2);
  EXPECT_EQ(Count({0, 2}).cores, 1);
  EXPECT_EQ(Count({0, 3}).cores, 2);
}

TEST_F(HostCpusTest, CountsCoresNoFurtherThanItSays) {
  std::vector<int> allowed;
  for (int cpu = 0; cpu < 100; ++cpu) allowed.push_back(cpu);
  EXPECT_EQ(Count(allowed).logical, 100);
  EXPECT_EQ(Count(allowed).cores, HostCpus::kMostCores);
}

TEST_F(HostCpusTest, TheQuotaOfVersion2IsALimit) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "max 100000\n");
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 4);
  Write("/sys/fs/cgroup/pod/cpu.max", "150000 100000\n");
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 2) << "of the group that contains it, rounded up";
  Write("/sys/fs/cgroup/pod/container/cpu.max", "20000 100000\n");
  EXPECT_EQ(Count({0, 1, 2, 3}).logical, 1);
}

TEST_F(HostCpusTest, TheQuotaOfVersion1IsALimit) {
  Write("/proc/self/cgroup", "5:memory:/a\n4:cpu,cpuacct:/a\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 4);
  Write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "300000\n");
  EXPECT_EQ(Count({0, 1, 2, 3}).cores, 3);
}

TEST_F(HostCpusTest, NonsenseLimitsNothing) {
  for (const char* text : {"", "max", "x y", "-1 100000", "100000 0", "1e300 1e-300", "nan nan"}) {
    Write("/proc/self/cgroup", "0::/\nbroken\n::\n");
    Write("/sys/fs/cgroup/cpu.max", text);
    EXPECT_EQ(Count({0, 1}).cores, 2) << text;
  }
}

TEST(HostCpus, ThisMachineHasSome) {
  EXPECT_GE(GetHostCpus().cores, 1);
  EXPECT_GE(GetHostCpus().logical, 1);
}

}  // namespace
}  // namespace atollrt

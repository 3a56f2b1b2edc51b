// SPDX-License-Identifier: Apache-2.0
#include "driver/device/activity.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <thread>

#include "driver/open_device.h"
#include "runtime/base/monotonic.h"
#include "tests/support/rng.h"
#include "tests/support/test_executables.h"

namespace atollrt {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kSecond = 1'000 * kMs;
constexpr size_t kPageBytes = 4096;  // docs/activity.md
constexpr size_t kSequenceOffset = 376;

class ActivityTest : public testing::Test {
 protected:
  void SetUp() override {
    char path[] = "/tmp/atoll-activity-test-XXXXXX";
    ASSERT_NE(mkdtemp(path), nullptr);
    parent_ = path;
    directory_ = parent_ + "/activity";
    device_.name = "emu:test";
    device_.array_rows = 32;
    device_.array_columns = 64;
    device_.clock_hz = 500'000'000;
    device_.memory_bytes = 8 << 20;
    // Times of requests are made up; only that a device is open since now is real.
    start_ns_ = MonotonicNs() + kSecond;
  }
  void TearDown() override { std::filesystem::remove_all(parent_); }

  std::unique_ptr<ActivityPublisher> Publish() {
    return ActivityPublisher::Create(directory_, device_);
  }
  // The only activity, as seen `after_ns` after start_ns_.
  Activity Only(int64_t after_ns) const {
    const std::vector<Activity> list = ListActivity(directory_, start_ns_ + after_ns);
    EXPECT_THAT(list, SizeIs(1));
    return list.empty() ? Activity() : list[0];
  }
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
      files.push_back(entry.path());
    }
    return files;
  }
  std::string Write(const std::string& name, const std::string& content) const {
    std::filesystem::create_directory(directory_);
    const std::string path = directory_ + "/" + name;
    std::ofstream(path, std::ios::binary) << content;
    return path;
  }
  static void MakeOld(const std::string& path) {
    const timespec times[2] = {{1'000'000, 0}, {1'000'000, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, path.c_str(), times, 0), 0);
  }

  std::string parent_;
  std::string directory_;
  DeviceInfo device_;
  int64_t start_ns_ = 0;
};

// ---- Counting -----------------------------------------------------------------------------------

TEST_F(ActivityTest, SaysWhoUsesWhat) {
  const auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  const Activity activity = Only(0);
  EXPECT_EQ(activity.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(activity.device, "emu:test");
  EXPECT_THAT(activity.command, HasSubstr("activity_test"));
  EXPECT_EQ(activity.array_rows, 32u);
  EXPECT_EQ(activity.array_columns, 64u);
  EXPECT_EQ(activity.clock_hz, 500'000'000u);
  EXPECT_EQ(activity.memory_bytes, 8u << 20);
  EXPECT_NEAR(activity.open_seconds, 1, 0.5);
  EXPECT_EQ(activity.total.requests, 0u);
  EXPECT_EQ(activity.step_mean_seconds, 0);
}

TEST_F(ActivityTest, SumsUpRequests) {
  const auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  int64_t now = start_ns_;
  for (const int64_t ms : {10, 30, 20}) {
    publisher->Begin(now);
    publisher->End({.start_ns = now,
                    .end_ns = now + ms * kMs,
                    .failed = ms == 30,
                    .device_cycles = 1000,
                    .macs = 5000,
                    .bytes_to_device = 70,
                    .bytes_from_device = 3,
                    .memory_used_bytes = 4096});
    now += 100 * kMs;
  }
  const Activity activity = Only(300 * kMs);
  for (const ActivityCounts& counts : {activity.total, activity.recent}) {
    EXPECT_EQ(counts.requests, 3u);
    EXPECT_EQ(counts.failures, 1u);
    EXPECT_EQ(counts.device_cycles, 3000u);
    EXPECT_EQ(counts.macs, 15'000u);
    EXPECT_EQ(counts.bytes_to_device, 210u);
    EXPECT_EQ(counts.bytes_from_device, 9u);
    EXPECT_NEAR(counts.busy_seconds, 0.060, 1e-9);
  }
  EXPECT_EQ(activity.memory_used_bytes, 4096u);
  EXPECT_NEAR(activity.step_min_seconds, 0.010, 1e-9);
  EXPECT_NEAR(activity.step_mean_seconds, 0.020, 1e-9);
  EXPECT_NEAR(activity.step_max_seconds, 0.030, 1e-9);
  EXPECT_EQ(activity.running_seconds, 0);
}

TEST_F(ActivityTest, ForgetsWhatIsMoreThanASecondAgo) {
  const auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  // Ten requests of 5 ms a second, for five seconds.
  for (int i = 0; i < 50; ++i) {
    const int64_t now = start_ns_ + i * 100 * kMs;
    publisher->End({.start_ns = now, .end_ns = now + 5 * kMs, .device_cycles = 7});
  }
  const Activity activity = Only(5 * kSecond);
  EXPECT_EQ(activity.total.requests, 50u);
  EXPECT_GE(activity.recent_seconds, 1.0);
  EXPECT_LE(activity.recent_seconds, 1.125);
  EXPECT_GE(activity.recent.requests, 9u);
  EXPECT_LE(activity.recent.requests, 12u);
  EXPECT_EQ(activity.recent.device_cycles, activity.recent.requests * 7);
  EXPECT_NEAR(activity.recent.busy_seconds / activity.recent_seconds, 0.05, 0.01);
  const Activity later = Only(10 * kSecond);
  EXPECT_EQ(later.recent.requests, 0u);
  EXPECT_EQ(later.recent.busy_seconds, 0);
  EXPECT_EQ(later.step_max_seconds, 0);
  EXPECT_EQ(later.total.requests, 50u);
}

TEST_F(ActivityTest, CountsTheRequestInProgress) {
  const auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  publisher->Begin(start_ns_);
  Activity activity = Only(3 * kSecond);
  EXPECT_NEAR(activity.running_seconds, 3, 1e-6);
  EXPECT_DOUBLE_EQ(activity.recent.busy_seconds, activity.recent_seconds);
  EXPECT_EQ(activity.recent.requests, 0u);
  // A long one counts where it ends, and its time where it was.
  publisher->End({.start_ns = start_ns_, .end_ns = start_ns_ + 3 * kSecond});
  activity = Only(3 * kSecond + 500 * kMs);
  EXPECT_EQ(activity.recent.requests, 1u);
  EXPECT_NEAR(activity.step_max_seconds, 3, 1e-9);
  EXPECT_NEAR(activity.recent.busy_seconds, activity.recent_seconds - 0.5, 1e-6);
  EXPECT_NEAR(activity.total.busy_seconds, 3, 1e-9);
}

TEST_F(ActivityTest, ReadersSeeWholeRequests) {
  const auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  std::atomic<bool> stop = false;
  std::thread writer([&] {
    // In bursts: a reader whose copy is never left alone gives up in the end.
    for (int64_t now = start_ns_; !stop; now += 1000) {
      publisher->End({.start_ns = now, .end_ns = now + 10, .device_cycles = 3, .macs = 5});
      if ((now - start_ns_) % 16'000 == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
    }
  });
  for (int i = 0; i < 1000; ++i) {
    const ActivityCounts total = Only(kSecond).total;
    EXPECT_EQ(total.device_cycles, total.requests * 3);
    EXPECT_EQ(total.macs, total.requests * 5);
  }
  stop = true;
  writer.join();
}

// ---- Files --------------------------------------------------------------------------------------

TEST_F(ActivityTest, IsPrivateAndGoneWithItsPublisher) {
  auto publisher = Publish();
  ASSERT_NE(publisher, nullptr);
  struct stat info = {};
  ASSERT_EQ(stat(directory_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
  ASSERT_THAT(Files(), SizeIs(1));
  ASSERT_EQ(stat(Files()[0].c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0400u);
  EXPECT_EQ(info.st_size, static_cast<off_t>(kPageBytes));
  const auto second = Publish();
  EXPECT_THAT(ListActivity(directory_, start_ns_), SizeIs(2));
  publisher = nullptr;
  EXPECT_THAT(ListActivity(directory_, start_ns_), SizeIs(1));
  EXPECT_THAT(Files(), SizeIs(1));
}

TEST_F(ActivityTest, IsOffWithoutADirectoryOfItsOwn) {
  EXPECT_EQ(ActivityPublisher::Create("", device_), nullptr);
  EXPECT_EQ(ActivityPublisher::Create(parent_ + "/none/none", device_), nullptr);
  std::filesystem::create_directory(directory_);
  ASSERT_EQ(chmod(directory_.c_str(), 0777), 0);
  EXPECT_EQ(Publish(), nullptr) << "everyone may write there";
  ASSERT_EQ(chmod(directory_.c_str(), 0700), 0);
  EXPECT_NE(Publish(), nullptr);
  std::filesystem::create_directory_symlink(directory_, parent_ + "/link");
  EXPECT_EQ(ActivityPublisher::Create(parent_ + "/link", device_), nullptr);
  EXPECT_EQ(ActivityPublisher::Create("/proc", device_), nullptr);
}

TEST_F(ActivityTest, TheEnvironmentSaysWhere) {
  ASSERT_EQ(setenv("ATOLL_ACTIVITY", "off", 1), 0);
  EXPECT_EQ(ActivityDirectory(), "");
  ASSERT_EQ(setenv("ATOLL_ACTIVITY", "/somewhere", 1), 0);
  EXPECT_EQ(ActivityDirectory(), "/somewhere");
  ASSERT_EQ(unsetenv("ATOLL_ACTIVITY"), 0);
  ASSERT_EQ(setenv("XDG_RUNTIME_DIR", "/run/user/7", 1), 0);
  EXPECT_EQ(ActivityDirectory(), "/run/user/7/atoll");
  ASSERT_EQ(unsetenv("XDG_RUNTIME_DIR"), 0);
  EXPECT_EQ(ActivityDirectory(), "/tmp/atoll-" + std::to_string(geteuid()));
}

TEST_F(ActivityTest, WhatADeadProcessLeftIsIgnoredAndRemoved) {
  const pid_t child = fork();
  if (child == 0) {
    Publish().release();  // as if killed: nobody cleans up
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  ASSERT_THAT(Files(), SizeIs(1));
  EXPECT_THAT(ListActivity(directory_, start_ns_), IsEmpty());
  EXPECT_THAT(Files(), SizeIs(1)) << "it may be someone's who is about to begin";
  MakeOld(Files()[0]);
  EXPECT_THAT(ListActivity(directory_, start_ns_), IsEmpty());
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(ActivityTest, AChildThatInheritedTheFileDoesNotKeepItAlive) {
  int hold[2];
  ASSERT_EQ(pipe(hold), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    auto publisher = Publish();
    if (fork() == 0) {  // lives on with the file and its lock, until the test closes the pipe
      close(hold[1]);
      char byte = 0;
      while (read(hold[0], &byte, 1) > 0) continue;
    }
    publisher.release();
    _exit(0);
  }
  close(hold[0]);
  ASSERT_EQ(waitpid(parent, nullptr, 0), parent);
  EXPECT_THAT(Files(), SizeIs(1));
  EXPECT_THAT(ListActivity(directory_, start_ns_), IsEmpty());
  close(hold[1]);
}

TEST_F(ActivityTest, SeesOtherProcessesUntilTheyEnd) {
  int ready[2];
  int hold[2];
  ASSERT_EQ(pipe(ready), 0);
  ASSERT_EQ(pipe(hold), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(hold[1]);
    const auto publisher = Publish();
    publisher->End({.start_ns = start_ns_, .end_ns = start_ns_ + kMs});
    char byte = 1;
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (read(hold[0], &byte, 1) > 0) continue;
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  const Activity activity = Only(100 * kMs);
  EXPECT_EQ(activity.pid, static_cast<uint32_t>(child));
  EXPECT_EQ(activity.recent.requests, 1u);
  for (const int fd : {ready[0], ready[1], hold[0], hold[1]}) close(fd);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_THAT(ListActivity(directory_, start_ns_), IsEmpty());
}

// A file that a live process holds, with bytes of the test's choice.
class Held {
 public:
  explicit Held(const std::string& path) : fd_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    EXPECT_EQ(flock(fd_, LOCK_EX | LOCK_NB), 0);
  }
  ~Held() { close(fd_); }

 private:
  int fd_;
};

TEST_F(ActivityTest, SurvivesHostileFiles) {
  std::string good;
  {
    const auto publisher = Publish();
    std::ifstream file(Files()[0], std::ios::binary);
    good.assign(std::istreambuf_iterator<char>(file), {});
    ASSERT_EQ(good.size(), kPageBytes);
  }
  const auto check = [&](const std::string& content) {
    const std::string path = Write("1-1", content);
    const Held held(path);
    for (const Activity& activity : ListActivity(directory_, start_ns_)) {
      for (const double value :
           {activity.open_seconds, activity.running_seconds, activity.recent_seconds,
            activity.total.busy_seconds, activity.recent.busy_seconds, activity.step_min_seconds,
            activity.step_mean_seconds, activity.step_max_seconds}) {
        EXPECT_TRUE(std::isfinite(value) && value >= 0) << value;
      }
      EXPECT_LE(activity.recent.busy_seconds, activity.recent_seconds);
      EXPECT_LE(activity.recent_seconds, 1.125);
      for (const char c : activity.command + activity.device) EXPECT_TRUE(c >= 0x20 && c < 0x7F);
      EXPECT_LT(activity.command.size(), 256u + 1);
      EXPECT_LT(activity.device.size(), 64u + 1);
    }
  };
  for (const size_t size : {size_t{0}, size_t{8}, kPageBytes - 1, kPageBytes}) {
    check(good.substr(0, size));
  }
  check(good + "x");
  Rng rng(TestSeed(31));
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    // Behind magic, version and process: anything, or all ones.
    for (size_t k = 24; k < bytes.size(); ++k) {
      bytes[k] = i == 0 ? '\xFF' : static_cast<char>(rng.Int(-128, 127));
    }
    if (i > 5) bytes[kSequenceOffset] &= '\xFE';  // readers wait a moment for odd ones
    check(bytes);
  }
  for (int i = 0; i < 300; ++i) {
    std::string bytes = good;
    bytes[static_cast<size_t>(rng.Int(0, 23))] ^= static_cast<char>(rng.Int(1, 255));
    check(bytes);
  }
}

TEST_F(ActivityTest, LooksOnlyAtFilesOfItsKind) {
  const std::string notes = Write("notes.txt", "keep me");
  const std::string pipe = directory_ + "/1-1";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::filesystem::create_directory(directory_ + "/2-1");
  std::filesystem::create_symlink(notes, directory_ + "/3-1");
  MakeOld(notes);
  EXPECT_THAT(ListActivity(directory_, start_ns_), IsEmpty());
  EXPECT_THAT(Files(), SizeIs(4)) << "nothing of that is ours to remove";
  EXPECT_THAT(ListActivity(parent_ + "/none", start_ns_), IsEmpty());
}

// ---- A device -----------------------------------------------------------------------------------

TEST_F(ActivityTest, ADeviceSaysWhatItDid) {
  ASSERT_EQ(setenv("ATOLL_ACTIVITY", directory_.c_str(), 1), 0);
  {
    const auto device = OpenDevice({.device = "emu", .threads = 1});
    ASSERT_TRUE(device.ok());
    const auto id = (*device)->Load(std::make_shared<Executable>(MakeTableExecutable({})));
    ASSERT_TRUE(id.ok());
    const std::vector<uint8_t> input(4);
    std::vector<uint8_t> output(4);
    const Request request{.executable = *id, .inputs = {input}, .outputs = {output}};
    uint64_t cycles = 0;
    uint64_t bytes = 0;
    for (int i = 0; i < 5; ++i) {
      RequestReport report;
      ASSERT_TRUE((*device)->Wait(*(*device)->Submit(request), &report).ok());
      cycles += report.device_cycles;
      bytes += report.bytes_to_device;
    }
    const std::vector<Activity> list = ListActivity(directory_, MonotonicNs());
    ASSERT_THAT(list, SizeIs(1));
    EXPECT_EQ(list[0].device, "emu");
    EXPECT_EQ(list[0].total.requests, 5u);
    EXPECT_EQ(list[0].total.failures, 0u);
    EXPECT_EQ(list[0].total.device_cycles, cycles);
    EXPECT_EQ(list[0].total.bytes_to_device, bytes);
    EXPECT_GT(list[0].total.busy_seconds, 0);
    EXPECT_GT(list[0].memory_used_bytes, 256u);

    Executable bad = MakeTableExecutable({});
    std::get<TableInstruction>(bad.inference_program[1]).count = 1u << 30;
    const auto bad_id = (*device)->Load(std::make_shared<Executable>(std::move(bad)));
    ASSERT_TRUE(bad_id.ok());
    const Request faulty{.executable = *bad_id, .inputs = {input}, .outputs = {output}};
    EXPECT_FALSE((*device)->Wait(*(*device)->Submit(faulty), nullptr).ok());
    EXPECT_EQ(ListActivity(directory_, MonotonicNs())[0].total.failures, 1u);
  }
  EXPECT_THAT(ListActivity(directory_, MonotonicNs()), IsEmpty());
}

}  // namespace
}  // namespace atollrt

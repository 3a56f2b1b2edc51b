// SPDX-License-Identifier: Apache-2.0
#include "driver/device/activity.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/base/monotonic.h"
#include "runtime/base/sort_few.h"

namespace atollrt {

// docs/activity.md has the table. What changes is 64-bit words, so that no reader sees half of one.
struct ActivityPage {
  static constexpr char kMagic[8] = {'A', 'T', 'O', 'L', 'L', 'A', 'C', 'T'};
  static constexpr uint32_t kVersion = 1;
  static constexpr size_t kPeriods = 16;
  static constexpr int64_t kPeriodNs = 125'000'000;

  struct Period {
    uint64_t number = 0;  // time / kPeriodNs
    uint64_t requests = 0;
    uint64_t failures = 0;
    uint64_t device_cycles = 0;
    uint64_t macs = 0;
    uint64_t bytes_to_device = 0;
    uint64_t bytes_from_device = 0;
    uint64_t busy_ns = 0;
    uint64_t step_min_ns = 0;
    uint64_t step_max_ns = 0;
    uint64_t step_sum_ns = 0;
  };

  char magic[8] = {};
  uint32_t version = 0;
  uint32_t pid = 0;
  uint64_t pid_namespace = 0;  // inode of /proc/self/ns/pid, 0 if unknown
  uint64_t opened_ns = 0;
  uint64_t clock_hz = 0;
  uint64_t memory_bytes = 0;
  uint32_t array_rows = 0;
  uint32_t array_columns = 0;
  char device[64] = {};
  char command[256] = {};

  uint64_t sequence = 0;  // odd while what follows is being written
  uint64_t running_since_ns = 0;
  uint64_t memory_used_bytes = 0;
  Period total;  // number and step_* unused
  std::array<Period, kPeriods> periods;

  uint8_t unused[2200] = {};
};
static_assert(sizeof(ActivityPage) == 4096);
static_assert(offsetof(ActivityPage, sequence) == 376);
static_assert(offsetof(ActivityPage, total) == 400);
static_assert(offsetof(ActivityPage, periods) == 488);
static_assert(std::endian::native == std::endian::little);

namespace {

constexpr size_t kMostFiles = 4096;  // looked at; there are as many as open devices
constexpr int64_t kStaleSeconds = 10;
constexpr uint64_t kRecentPeriods = 8;  // whole ones, before the present one
constexpr double kSecondsPerNs = 1e-9;

// An open file; closed at the end.
class File {
 public:
  explicit File(int fd) : fd_(fd) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

// "PID-N".
bool IsActivityFileName(std::string_view name) {
  const size_t dash = name.find('-');
  const auto digits = [](std::string_view text) {
    return !text.empty() && text.size() <= 10 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  };
  return dash != std::string_view::npos && digits(name.substr(0, dash)) &&
         digits(name.substr(dash + 1));
}

uint64_t PidNamespace() {
  struct stat info = {};
  return stat("/proc/self/ns/pid", &info) == 0 ? info.st_ino : 0;
}

void CopyName(std::string_view name, std::span<char> to) {
  std::copy_n(name.begin(), std::min(name.size(), to.size() - 1), to.begin());
}

// A directory of this user's that nobody else can write to, created if it is not there.
bool IsOwnDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST) return false;
  struct stat info = {};
  return lstat(directory.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
         info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// ---- Writing words that others read at the same time --------------------------------------------

uint64_t Load(uint64_t& word) { return std::atomic_ref(word).load(std::memory_order_relaxed); }
void Store(uint64_t& word, uint64_t value) {
  std::atomic_ref(word).store(value, std::memory_order_relaxed);
}
void Add(uint64_t& word, uint64_t value) { Store(word, Load(word) + value); }

// Odd while it lives. Readers take a copy that is the same before and after.
class Writing {
 public:
  explicit Writing(ActivityPage* page) : page_(page) {
    Store(page_->sequence, Load(page_->sequence) | 1);
    std::atomic_thread_fence(std::memory_order_release);
  }
  ~Writing() {
    std::atomic_ref(page_->sequence).store(Load(page_->sequence) + 1, std::memory_order_release);
  }

 private:
  ActivityPage* page_;
};

using Period = ActivityPage::Period;

Period& PeriodOf(ActivityPage* page, uint64_t number) {
  Period& period = page->periods[number % ActivityPage::kPeriods];
  if (Load(period.number) == number) return period;
  Store(period.number, number);
  for (uint64_t* word : {&period.requests, &period.failures, &period.device_cycles, &period.macs,
                         &period.bytes_to_device, &period.bytes_from_device, &period.busy_ns,
                         &period.step_min_ns, &period.step_max_ns, &period.step_sum_ns}) {
    Store(*word, 0);
  }
  return period;
}

void AddStep(const ActivityPublisher::Step& step, Period* period) {
  Add(period->requests, 1);
  Add(period->failures, step.failed ? 1 : 0);
  Add(period->device_cycles, step.device_cycles);
  Add(period->macs, step.macs);
  Add(period->bytes_to_device, step.bytes_to_device);
  Add(period->bytes_from_device, step.bytes_from_device);
}

// ---- Reading ------------------------------------------------------------------------------------

bool ReadSequence(int fd, uint64_t* sequence) {
  return pread(fd, sequence, sizeof(*sequence), offsetof(ActivityPage, sequence)) ==
         static_cast<ssize_t>(sizeof(*sequence));
}

// A copy of what the file holds, in one state if its writer lets go of it for a moment.
bool ReadPage(int fd, ActivityPage* page) {
  // The writer is done in no time, unless it lost its CPU in the middle or was stopped.
  constexpr int kAttempts = 50;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    if (attempt > 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    // One copy of everything may see the words in any order, so the sequence is read on both sides.
    uint64_t before = 0, after = 0;
    if (!ReadSequence(fd, &before) ||
        pread(fd, page, sizeof(*page), 0) != static_cast<ssize_t>(sizeof(*page)) ||
        !ReadSequence(fd, &after)) {
      return false;
    }
    if (before == after && before % 2 == 0) break;
  }
  return std::memcmp(page->magic, ActivityPage::kMagic, sizeof(page->magic)) == 0 &&
         page->version == ActivityPage::kVersion;
}

// Whether the process that writes the file lives: it holds a lock. A child of it that inherited the
// file does so, too, and does not count.
bool IsAlive(int fd, const ActivityPage& page) {
  if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
    flock(fd, LOCK_UN);
    return false;
  }
  if (errno != EWOULDBLOCK) return false;
  const auto pid = static_cast<pid_t>(page.pid);
  const bool same_namespace = page.pid_namespace != 0 && page.pid_namespace == PidNamespace();
  return !same_namespace || pid <= 0 || kill(pid, 0) == 0 || errno != ESRCH;
}

std::string PrintableText(std::span<const char> text) {
  std::string printable;
  for (const char c : text) {
    if (c == '\0') break;
    printable += c >= 0x20 && c < 0x7F ? c : '?';
  }
  return printable;
}

double SecondsSince(uint64_t then_ns, int64_t now_ns) {
  const auto now = static_cast<uint64_t>(std::max<int64_t>(now_ns, 0));
  return then_ns < now ? static_cast<double>(now - then_ns) * kSecondsPerNs : 0;
}

void AddCounts(const Period& period, ActivityCounts* counts) {
  counts->requests += period.requests;
  counts->failures += period.failures;
  counts->device_cycles += period.device_cycles;
  counts->macs += period.macs;
  counts->bytes_to_device += period.bytes_to_device;
  counts->bytes_from_device += period.bytes_from_device;
  counts->busy_seconds += static_cast<double>(period.busy_ns) * kSecondsPerNs;
}

void SummarizeRecent(const ActivityPage& page, int64_t now_ns, Activity* activity) {
  const uint64_t now = static_cast<uint64_t>(std::max<int64_t>(now_ns, 0));
  const uint64_t last = now / ActivityPage::kPeriodNs;
  const uint64_t first = last > kRecentPeriods ? last - kRecentPeriods : 0;
  const uint64_t since_ns = std::max(first * ActivityPage::kPeriodNs, page.opened_ns);
  activity->recent_seconds = SecondsSince(since_ns, now_ns);
  uint64_t min_ns = UINT64_MAX;
  uint64_t max_ns = 0;
  double sum_seconds = 0;
  for (const Period& period : page.periods) {
    if (period.number < first || period.number > last) continue;
    AddCounts(period, &activity->recent);
    if (period.requests == 0) continue;
    min_ns = std::min(min_ns, period.step_min_ns);
    max_ns = std::max(max_ns, period.step_max_ns);
    sum_seconds += static_cast<double>(period.step_sum_ns) * kSecondsPerNs;
  }
  if (activity->recent.requests > 0 && min_ns != UINT64_MAX) {
    activity->step_min_seconds = static_cast<double>(min_ns) * kSecondsPerNs;
    activity->step_max_seconds = static_cast<double>(max_ns) * kSecondsPerNs;
    activity->step_mean_seconds = sum_seconds / static_cast<double>(activity->recent.requests);
  }
  if (page.running_since_ns != 0) {
    activity->running_seconds = SecondsSince(page.running_since_ns, now_ns);
    activity->recent.busy_seconds +=
        SecondsSince(std::max(page.running_since_ns, since_ns), now_ns);
  }
  activity->recent.busy_seconds = std::min(activity->recent.busy_seconds, activity->recent_seconds);
}

Activity Summarize(const ActivityPage& page, int64_t now_ns) {
  Activity activity;
  activity.pid = page.pid;
  activity.command = PrintableText(page.command);
  activity.device = PrintableText(page.device);
  activity.array_rows = page.array_rows;
  activity.array_columns = page.array_columns;
  activity.clock_hz = page.clock_hz;
  activity.memory_bytes = page.memory_bytes;
  activity.memory_used_bytes = page.memory_used_bytes;
  activity.open_seconds = SecondsSince(page.opened_ns, now_ns);
  AddCounts(page.total, &activity.total);
  SummarizeRecent(page, now_ns, &activity);
  return activity;
}

// The page of one file of the directory if its writer lives. Removes what a dead one left.
std::optional<ActivityPage> ReadFile(int directory, const char* name) {
  const File file(openat(directory, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  struct stat info = {};
  if (!file.ok() || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) ||
      info.st_uid != geteuid()) {
    return std::nullopt;
  }
  const bool is_old = std::time(nullptr) - info.st_mtime > kStaleSeconds;
  ActivityPage page;
  const bool is_page =
      info.st_size == static_cast<off_t>(sizeof(page)) && ReadPage(file.get(), &page);
  // A file that is being created is not locked yet; it becomes a page in a moment.
  if (!is_page && !is_old) return std::nullopt;
  const bool alive = IsAlive(file.get(), page);
  if (!alive && is_old) unlinkat(directory, name, 0);
  if (!alive || !is_page) return std::nullopt;
  return page;
}

}  // namespace

void ReadOwnCommand(std::span<char> command) {
  const File file(open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC));
  if (!file.ok()) return;
  const ssize_t size = read(file.get(), command.data(), command.size() - 1);
  if (size <= 0) return;
  std::replace(command.begin(), command.begin() + size - 1, '\0', ' ');
}

std::string ActivityDirectory() {
  if (const char* directory = secure_getenv("ATOLL_ACTIVITY"); directory != nullptr && *directory) {
    return std::string_view(directory) == "off" ? "" : directory;
  }
  if (const char* runtime = secure_getenv("XDG_RUNTIME_DIR");
      runtime != nullptr && *runtime == '/') {
    return std::string(runtime) + "/atoll";
  }
  return "/tmp/atoll-" + std::to_string(geteuid());
}

// ---- Publishing ---------------------------------------------------------------------------------

std::unique_ptr<ActivityPublisher> ActivityPublisher::Create(const std::string& directory,
                                                             const DeviceInfo& device) {
  static std::atomic<uint32_t> last_number{0};
  if (directory.empty() || !IsOwnDirectory(directory)) return nullptr;
  const std::string path =
      directory + "/" + std::to_string(getpid()) + "-" + std::to_string(++last_number);
  unlink(path.c_str());  // of an earlier process with this number
  File file(open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
  if (!file.ok()) return nullptr;
  const auto give_up = [&] {
    unlink(path.c_str());
    return nullptr;
  };
  // Room for all of it: a full disk must show here, not as a signal at the first write. Without
  // permission to write nobody truncates it by mistake.
  if (flock(file.get(), LOCK_EX | LOCK_NB) != 0 ||
      posix_fallocate(file.get(), 0, sizeof(ActivityPage)) != 0 || fchmod(file.get(), 0400) != 0) {
    return give_up();
  }
  void* memory =
      mmap(nullptr, sizeof(ActivityPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
  if (memory == MAP_FAILED) return give_up();

  auto* page = new (memory) ActivityPage;
  page->pid = static_cast<uint32_t>(getpid());
  page->pid_namespace = PidNamespace();
  page->opened_ns = static_cast<uint64_t>(MonotonicNs());
  page->clock_hz = device.clock_hz;
  page->memory_bytes = device.memory_bytes;
  page->array_rows = device.array_rows;
  page->array_columns = device.array_columns;
  CopyName(device.name, page->device);
  ReadOwnCommand(page->command);
  page->version = ActivityPage::kVersion;
  std::atomic_thread_fence(std::memory_order_release);
  std::memcpy(page->magic, ActivityPage::kMagic, sizeof(page->magic));
  return std::unique_ptr<ActivityPublisher>(new ActivityPublisher(path, file.Release(), page));
}

ActivityPublisher::ActivityPublisher(std::string path, int file, ActivityPage* page)
    : path_(std::move(path)), file_(file), process_(getpid()), page_(page) {}

ActivityPublisher::~ActivityPublisher() {
  if (getpid() == process_) unlink(path_.c_str());  // and not in a child of it
  munmap(page_, sizeof(ActivityPage));
  close(file_);
}

void ActivityPublisher::Begin(int64_t now_ns) {
  const Writing writing(page_);
  Store(page_->running_since_ns, static_cast<uint64_t>(now_ns));
}

void ActivityPublisher::End(const Step& step) {
  constexpr uint64_t kPeriodNs = ActivityPage::kPeriodNs;
  const auto start_ns = static_cast<uint64_t>(step.start_ns);
  const auto end_ns = static_cast<uint64_t>(step.end_ns);
  const uint64_t step_ns = end_ns - start_ns;
  const uint64_t last = end_ns / kPeriodNs;
  const Writing writing(page_);
  Store(page_->running_since_ns, 0);
  Store(page_->memory_used_bytes, step.memory_used_bytes);
  AddStep(step, &page_->total);
  Add(page_->total.busy_ns, step_ns);

  // The request counts where it ended, its time where it was spent.
  const uint64_t first =
      std::max(start_ns / kPeriodNs, last - std::min<uint64_t>(last, ActivityPage::kPeriods - 1));
  for (uint64_t number = first; number <= last; ++number) {
    const uint64_t begin = std::max(start_ns, number * kPeriodNs);
    const uint64_t end = std::min(end_ns, (number + 1) * kPeriodNs);
    Add(PeriodOf(page_, number).busy_ns, end - begin);
  }
  Period& period = PeriodOf(page_, last);
  const bool is_first = Load(period.requests) == 0;
  AddStep(step, &period);
  Store(period.step_min_ns, is_first ? step_ns : std::min(Load(period.step_min_ns), step_ns));
  Store(period.step_max_ns, std::max(Load(period.step_max_ns), step_ns));
  Add(period.step_sum_ns, step_ns);
}

std::vector<Activity> ListActivity(const std::string& directory, int64_t now_ns) {
  std::vector<Activity> list;
  DIR* entries = directory.empty() ? nullptr : opendir(directory.c_str());
  if (entries == nullptr) return list;
  size_t looked_at = 0;
  for (const dirent* entry = readdir(entries); entry != nullptr && looked_at < kMostFiles;
       entry = readdir(entries)) {
    if (!IsActivityFileName(entry->d_name)) continue;
    ++looked_at;
    if (const auto page = ReadFile(dirfd(entries), entry->d_name)) {
      list.push_back(Summarize(*page, now_ns));
    }
  }
  closedir(entries);
  SortFew(&list, [](const Activity& a, const Activity& b) {
    return std::pair(a.pid, -a.open_seconds) < std::pair(b.pid, -b.open_seconds);
  });
  return list;
}

}  // namespace atollrt

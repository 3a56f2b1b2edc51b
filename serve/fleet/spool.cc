// SPDX-License-Identifier: Apache-2.0
#include "serve/fleet/spool.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "serve/fleet/subjects.h"
#include "serve/inference/json_text.h"

namespace atollserve {
namespace {

using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;
using Json = nlohmann::json;

constexpr size_t kMaxLineBytes = 64 << 10;
constexpr uint64_t kMaxBodyBytes = uint64_t{64} << 20;
constexpr size_t kMaxHeaders = 16;

Status FileError(const std::string& path, const char* what) {
  const int number = errno;
  const StatusCode code = number == ENOSPC || number == EDQUOT  ? StatusCode::kResourceExhausted
                          : number == EACCES || number == EPERM ? StatusCode::kPermissionDenied
                                                                : StatusCode::kNotFound;
  return Status(code, "spool '" + path + "' cannot be " + what + ": " + std::strerror(number));
}

bool ReadText(const Json& json, const char* name, std::string* text) {
  const Json* const member = FindMember(json, name);
  if (member == nullptr || !member->is_string()) return false;
  *text = member->get<std::string>();
  return true;
}

std::string LineOf(const SpoolJob& job) {
  Json headers = Json::object();
  for (const auto& [name, value] : job.headers) headers[name] = value;
  return DumpJson({{"job", job.job},
                   {"name", job.name},
                   {"model", job.model},
                   {"priority", job.priority},
                   {"headers", std::move(headers)},
                   {"bytes", job.bytes}}) +
         "\n";
}

}  // namespace

Result<SpoolLine> ParseSpoolLine(std::string_view text) {
  if (text.size() > kMaxLineBytes) {
    return InvalidArgument("a line has %zu bytes; at most %zu", text.size(), kMaxLineBytes);
  }
  ATOLL_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  SpoolLine line;
  std::string done;
  if (ReadText(json, "done", &done)) {
    if (!IsJobId(done)) return InvalidArgument("what is done has no id");
    line.done = std::move(done);
    return line;
  }
  SpoolJob job;
  const Json* const priority = FindMember(json, "priority");
  const Json* const bytes = FindMember(json, "bytes");
  const Json* const headers = FindMember(json, "headers");
  if (!ReadText(json, "job", &job.job) || !IsJobId(job.job) || !ReadText(json, "name", &job.name) ||
      !ReadText(json, "model", &job.model) || !IsFleetModelName(job.model) || priority == nullptr ||
      !priority->is_number_unsigned() || priority->get<uint64_t>() >= kPriorities ||
      bytes == nullptr || !bytes->is_number_unsigned() || bytes->get<uint64_t>() > kMaxBodyBytes ||
      headers == nullptr || !headers->is_object() || headers->size() > kMaxHeaders) {
    return InvalidArgument("this is no job");
  }
  job.priority = static_cast<int>(priority->get<uint64_t>());
  job.bytes = bytes->get<uint64_t>();
  for (const auto& [name, value] : headers->items()) {
    if (!value.is_string()) return InvalidArgument("a job has a header that is no text");
    job.headers[name] = value.get<std::string>();
  }
  line.job = std::move(job);
  return line;
}

Result<std::unique_ptr<Spool>> Spool::Open(const std::string& folder) {
  std::unique_ptr<Spool> spool(new Spool);
  spool->path_ = (std::filesystem::path(folder) / "jobs.spool").string();
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  spool->file_ =
      atollrt::FileDescriptor(open(spool->path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (spool->file_.get() < 0) return FileError(spool->path_, "opened");
  if (flock(spool->file_.get(), LOCK_EX | LOCK_NB) != 0) {
    return Status(StatusCode::kDeviceBusy,
                  "spool '" + spool->path_ +
                      "' is another process's; wait for that, or give another --spool");
  }
  ATOLL_RETURN_IF_ERROR(spool->Read());
  // The folder's entry for the file, too.
  const atollrt::FileDescriptor directory(open(folder.c_str(), O_RDONLY | O_CLOEXEC));
  if (directory.get() >= 0) (void)fsync(directory.get());
  return spool;
}

Status Spool::Read() {
  struct stat facts = {};
  if (fstat(file_.get(), &facts) != 0) return FileError(path_, "read");
  const auto end = static_cast<uint64_t>(facts.st_size);
  std::string line(kMaxLineBytes, '\0');
  while (size_ < end) {
    const ssize_t got = pread(file_.get(), line.data(), line.size(), static_cast<off_t>(size_));
    if (got < 0) return FileError(path_, "read");
    const std::string_view text(line.data(), static_cast<size_t>(got));
    const size_t newline = text.find('\n');
    if (newline == std::string_view::npos) break;
    auto parsed = ParseSpoolLine(text.substr(0, newline));
    if (!parsed.ok()) break;
    uint64_t next = size_ + newline + 1;
    if (parsed->job) {
      Entry entry = {.job = *std::move(parsed->job), .offset = next};
      if (end - next < entry.job.bytes + 1) break;
      next += entry.job.bytes + 1;
      char last = 0;
      if (pread(file_.get(), &last, 1, static_cast<off_t>(next - 1)) != 1 || last != '\n') break;
      names_.insert(entry.job.name);
      waiting_[entry.job.job] = std::move(entry);
    } else {
      waiting_.erase(*parsed->done);
    }
    size_ = next;
  }
  if (size_ < end && ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) {
    return FileError(path_, "cut off");
  }
  return {};
}

Status Spool::Append(std::string_view bytes, bool syncs) {
  size_t written = 0;
  while (written < bytes.size()) {
    const ssize_t count = pwrite(file_.get(), bytes.data() + written, bytes.size() - written,
                                 static_cast<off_t>(size_ + written));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      const Status status = FileError(path_, "written");
      (void)ftruncate(file_.get(), static_cast<off_t>(size_));
      return status;
    }
    written += static_cast<size_t>(count);
  }
  if (syncs && fdatasync(file_.get()) != 0) {
    const Status status = FileError(path_, "written");
    (void)ftruncate(file_.get(), static_cast<off_t>(size_));
    return status;
  }
  size_ += bytes.size();
  return {};
}

Status Spool::Add(const std::vector<SpoolJob>& jobs, const std::vector<std::string>& bodies) {
  ATOLL_CHECK(jobs.size() == bodies.size());
  const std::lock_guard lock(mutex_);
  std::string text;
  std::vector<Entry> entries;
  for (size_t i = 0; i < jobs.size(); ++i) {
    Entry entry = {.job = jobs[i], .offset = 0};
    entry.job.bytes = bodies[i].size();
    const std::string line = LineOf(entry.job);
    if (line.size() > kMaxLineBytes || bodies[i].size() > kMaxBodyBytes) {
      return InvalidArgument("job '%s' has %zu bytes; at most %llu",
                             jobs[i].name.substr(0, 100).c_str(), bodies[i].size(),
                             static_cast<unsigned long long>(kMaxBodyBytes));
    }
    text += line;
    entry.offset = size_ + text.size();
    text += bodies[i];
    text += '\n';
    entries.push_back(std::move(entry));
  }
  ATOLL_RETURN_IF_ERROR(Append(text, /*syncs=*/true));
  for (Entry& entry : entries) {
    names_.insert(entry.job.name);
    waiting_[entry.job.job] = std::move(entry);
  }
  return {};
}

Status Spool::Done(const std::string& job) {
  const std::lock_guard lock(mutex_);
  if (!waiting_.contains(job)) return {};
  ATOLL_RETURN_IF_ERROR(Append(DumpJson({{"done", job}}) + "\n", /*syncs=*/false));
  waiting_.erase(job);
  return {};
}

std::vector<SpoolJob> Spool::Waiting() const {
  const std::lock_guard lock(mutex_);
  std::vector<SpoolJob> jobs;
  for (const auto& [id, entry] : waiting_) jobs.push_back(entry.job);
  return jobs;
}

bool Spool::HasName(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return names_.contains(name);
}

Result<SpoolJob> Spool::Find(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(job);
  if (found == waiting_.end()) return atollrt::NotFound("no job %s is in the spool", job.c_str());
  return found->second.job;
}

Result<std::string> Spool::Body(const std::string& job) const {
  const std::lock_guard lock(mutex_);
  const auto found = waiting_.find(job);
  if (found == waiting_.end()) return atollrt::NotFound("no job %s is in the spool", job.c_str());
  const Entry& entry = found->second;
  std::string bytes(entry.job.bytes, '\0');
  size_t read = 0;
  while (read < bytes.size()) {
    const ssize_t count = pread(file_.get(), bytes.data() + read, bytes.size() - read,
                                static_cast<off_t>(entry.offset + read));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return FileError(path_, "read");
    read += static_cast<size_t>(count);
  }
  return bytes;
}

Status Spool::Clear() {
  const std::lock_guard lock(mutex_);
  if (!waiting_.empty()) return {};
  if (ftruncate(file_.get(), 0) != 0) return FileError(path_, "cut off");
  size_ = 0;
  names_.clear();
  return {};
}

}  // namespace atollserve

// SPDX-License-Identifier: Apache-2.0
#include "runtime/model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/base/bytes.h"
#include "runtime/ops/cpu_ops.h"

namespace atollrt {
namespace {

// Closes on every way out.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  int get() const { return fd_; }

 private:
  int fd_;
};

// A file that is there, opened, and its size.
struct OpenFile {
  FileDescriptor descriptor;
  size_t size = 0;
};

Result<OpenFile> OpenModelFile(const std::string& path) {
  // Opening a pipe must not wait for its other end.
  OpenFile file{FileDescriptor(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK))};
  if (file.descriptor.get() < 0) {
    const int error = errno;
    const StatusCode code = error == EACCES ? StatusCode::kPermissionDenied : StatusCode::kNotFound;
    return Status(code, Format("cannot open model '%s': %s", path.c_str(), std::strerror(error)));
  }
  struct stat info = {};
  if (fstat(file.descriptor.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return NotFound("model '%s' is not a regular file", path.c_str());
  }
  if (info.st_size == 0) return CorruptModel("model '%s' is empty", path.c_str());
  file.size = static_cast<size_t>(info.st_size);
  return file;
}

// Errors name the model.
template <typename T>
Result<T> Named(const std::string& path, Result<T> result) {
  if (result.ok()) return result;
  return Status(result.status()).WithContext(Format("model '%s'", path.c_str()));
}

Status Shrank(const std::string& path, size_t size) {
  return CorruptModel(
      "model '%s' has no longer the %zu bytes that it had when it was opened; replace models by "
      "renaming a new file to the name, not by writing into the old one",
      path.c_str(), size);
}

}  // namespace

Result<std::shared_ptr<const Model>> Model::Load(std::shared_ptr<Model> model,
                                                 std::span<const InputShape> input_shapes) {
  ATOLL_ASSIGN_OR_RETURN(model->contents_, LoadTflite(model->bytes_, EvaluateNode, input_shapes));
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::FromFile(const std::string& path,
                                                     std::span<const InputShape> input_shapes) {
  ATOLL_ASSIGN_OR_RETURN(const OpenFile file, OpenModelFile(path));
  std::shared_ptr<Model> model(new Model);
  model->path_ = path;
  model->mapping_size_ = file.size;
  model->mapping_ =
      mmap(nullptr, model->mapping_size_, PROT_READ, MAP_PRIVATE, file.descriptor.get(), 0);
  if (model->mapping_ == MAP_FAILED) {
    model->mapping_ = nullptr;
    return ResourceExhausted("cannot map model '%s' (%zu bytes): %s", path.c_str(),
                             model->mapping_size_, std::strerror(errno));
  }
  // Reading what a file that shrank has lost would end the process.
  struct stat now = {};
  if (fstat(file.descriptor.get(), &now) != 0 || static_cast<size_t>(now.st_size) < file.size) {
    return Shrank(path, file.size);
  }
  model->bytes_ = {static_cast<const uint8_t*>(model->mapping_), model->mapping_size_};
  return Named(path, Load(std::move(model), input_shapes));
}

Result<std::shared_ptr<const Model>> Model::FromCopyOfFile(
    const std::string& path, std::span<const InputShape> input_shapes) {
  ATOLL_ASSIGN_OR_RETURN(const OpenFile file, OpenModelFile(path));
  std::shared_ptr<Model> model(new Model);
  model->path_ = path;
  ATOLL_ASSIGN_OR_RETURN(model->copy_, Named(path, Buffer::Allocate(file.size)));
  for (size_t done = 0; done < file.size;) {
    const ssize_t count = read(file.descriptor.get(), model->copy_.data() + done, file.size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return NotFound("cannot read model '%s': %s", path.c_str(), std::strerror(errno));
    }
    if (count == 0) return Shrank(path, file.size);
    done += static_cast<size_t>(count);
  }
  model->bytes_ = model->copy_.bytes();
  return Named(path, Load(std::move(model), input_shapes));
}

Result<std::shared_ptr<const Model>> Model::FromBuffer(std::span<const uint8_t> bytes,
                                                       std::span<const InputShape> input_shapes) {
  if (bytes.empty()) return CorruptModel("the model is empty (0 bytes)");
  std::shared_ptr<Model> model(new Model);
  ATOLL_ASSIGN_OR_RETURN(model->copy_, Buffer::Allocate(bytes.size()));
  std::memcpy(model->copy_.data(), bytes.data(), bytes.size());
  model->bytes_ = model->copy_.bytes();
  return Load(std::move(model), input_shapes);
}

Result<std::shared_ptr<const Model>> Model::FromBorrowed(std::span<const uint8_t> bytes) {
  constexpr uintptr_t kAlignment = 16;  // of constants in a file
  if (bytes.empty() || reinterpret_cast<uintptr_t>(bytes.data()) % kAlignment != 0) {
    return FromBuffer(bytes);
  }
  std::shared_ptr<Model> model(new Model);
  model->bytes_ = bytes;
  return Load(std::move(model), {});
}

Result<std::shared_ptr<const Model>> Model::WithInputShapes(
    std::shared_ptr<const Model> model, std::span<const InputShape> input_shapes) {
  const auto is_same = [&](const Resized& known) {
    return std::equal(known.shapes.begin(), known.shapes.end(), input_shapes.begin(),
                      input_shapes.end(), [](const InputShape& a, const InputShape& b) {
                        return a.name == b.name && a.index == b.index && a.shape == b.shape;
                      });
  };
  const std::shared_ptr<const Model> kept = model;  // as long as the lock
  const Model& original = *kept;
  const std::lock_guard lock(original.resized_mutex_);
  std::erase_if(original.resized_, [](const Resized& known) { return known.model.expired(); });
  for (const Resized& known : original.resized_) {
    if (!is_same(known)) continue;
    if (std::shared_ptr<const Model> same = known.model.lock(); same != nullptr) return same;
  }
  std::shared_ptr<Model> resized(new Model);
  resized->bytes_ = model->bytes_;
  resized->path_ = model->path_;
  resized->lender_ = std::move(model);
  ATOLL_ASSIGN_OR_RETURN(std::shared_ptr<const Model> loaded,
                         Load(std::move(resized), input_shapes));
  original.resized_.push_back({{input_shapes.begin(), input_shapes.end()}, loaded});
  return loaded;
}

Result<std::shared_ptr<const Model>> Model::WithGraph(std::shared_ptr<const Model> model,
                                                      Graph graph) {
  std::shared_ptr<Model> changed(new Model);
  changed->bytes_ = model->bytes_;
  changed->path_ = model->path_;
  changed->contents_.graphs = model->contents_.graphs;
  changed->contents_.graphs[0] = std::move(graph);
  changed->contents_.variables = model->contents_.variables;
  changed->contents_.extras = model->contents_.extras;
  changed->lender_ = std::move(model);
  return std::shared_ptr<const Model>(std::move(changed));
}

void Model::DropPages(std::span<const uint8_t> bytes) const {
  if (lender_ != nullptr) return lender_->DropPages(bytes);
  const auto mapping = reinterpret_cast<uintptr_t>(mapping_);
  const auto first = reinterpret_cast<uintptr_t>(bytes.data());
  if (first < mapping || first - mapping > mapping_size_ ||
      bytes.size() > mapping_size_ - (first - mapping)) {
    return;  // not in the file
  }
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const uintptr_t begin = AlignUp(first, page);
  // The last page is the file's alone, too.
  const bool is_end = first + bytes.size() == mapping + mapping_size_;
  const uintptr_t end =
      is_end ? AlignUp(first + bytes.size(), page) : (first + bytes.size()) / page * page;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Model::~Model() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

}  // namespace atollrt

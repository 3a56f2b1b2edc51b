// SPDX-License-Identifier: Apache-2.0
#include "runtime/model.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/ops/cpu_ops.h"

namespace atollrt {
namespace {

// Closes on every way out.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd) : fd_(fd) {}
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  int get() const { return fd_; }

 private:
  const int fd_;
};

}  // namespace

Result<std::shared_ptr<const Model>> Model::FromFile(const std::string& path,
                                                     std::span<const InputShape> input_shapes) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) {
    const int error = errno;
    const StatusCode code = error == EACCES ? StatusCode::kPermissionDenied : StatusCode::kNotFound;
    return Status(code, Format("cannot open model '%s': %s", path.c_str(), std::strerror(error)));
  }
  struct stat info = {};
  if (fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return NotFound("model '%s' is not a regular file", path.c_str());
  }
  if (info.st_size == 0) return CorruptModel("model '%s' is empty", path.c_str());
  std::shared_ptr<Model> model(new Model);
  model->mapping_size_ = static_cast<size_t>(info.st_size);
  model->mapping_ = mmap(nullptr, model->mapping_size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (model->mapping_ == MAP_FAILED) {
    model->mapping_ = nullptr;
    return ResourceExhausted("cannot map model '%s' (%zu bytes): %s", path.c_str(),
                             model->mapping_size_, std::strerror(errno));
  }
  model->bytes_ = {static_cast<const uint8_t*>(model->mapping_), model->mapping_size_};
  Result<LoadedModel> loaded = LoadTflite(model->bytes_, EvaluateNode, input_shapes);
  if (!loaded.ok()) {
    return Status(loaded.status()).WithContext(Format("model '%s'", path.c_str()));
  }
  model->contents_ = *std::move(loaded);
  return std::shared_ptr<const Model>(std::move(model));
}

Result<std::shared_ptr<const Model>> Model::FromBuffer(std::span<const uint8_t> bytes,
                                                       std::span<const InputShape> input_shapes) {
  if (bytes.empty()) return CorruptModel("the model is empty (0 bytes)");
  std::shared_ptr<Model> model(new Model);
  ATOLL_ASSIGN_OR_RETURN(model->copy_, Buffer::Allocate(bytes.size()));
  std::memcpy(model->copy_.data(), bytes.data(), bytes.size());
  model->bytes_ = model->copy_.bytes();
  ATOLL_ASSIGN_OR_RETURN(model->contents_, LoadTflite(model->bytes_, EvaluateNode, input_shapes));
  return std::shared_ptr<const Model>(std::move(model));
}

void Model::DropPages() const {
  if (mapping_ != nullptr) madvise(mapping_, mapping_size_, MADV_DONTNEED);
}

Model::~Model() {
  if (mapping_ != nullptr) munmap(mapping_, mapping_size_);
}

}  // namespace atollrt

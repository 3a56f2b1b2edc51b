// SPDX-License-Identifier: Apache-2.0
#include "serve/kubernetes/plugin.h"

#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <optional>
#include <utility>

#include "device_plugin.grpc.pb.h"
#include "runtime/base/file_descriptor.h"

namespace atollserve {
namespace {

using atollrt::FileDescriptor;
using atollrt::InvalidArgument;
using atollrt::Result;
using atollrt::Status;
using atollrt::StatusCode;

constexpr const char* kVersion = "v1beta1";
constexpr const char* kKubelet = "kubelet.sock";
constexpr std::chrono::seconds kRegisterTimeout{5};
constexpr int kLookMs = 1000;

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return {status.code() == StatusCode::kNotFound ? grpc::StatusCode::NOT_FOUND
                                                 : grpc::StatusCode::INVALID_ARGUMENT,
          status.message()};
}

std::vector<std::string> ListOf(const google::protobuf::RepeatedPtrField<std::string>& field) {
  return {field.begin(), field.end()};
}

// What is offered, and the answers of the kubelet's questions.
class Service final : public v1beta1::DevicePlugin::Service {
 public:
  explicit Service(const DevicePluginOptions& options) : options_(options) {}

  void Set(std::vector<OfferedDevice> devices) {
    v1beta1::ListAndWatchResponse list;
    std::vector<Place> places = PlacesOf(devices, options_.shares);
    for (const Place& place : places) {
      const OfferedDevice& device = devices[place.device];
      auto* const to = list.add_devices();
      to->set_id(place.id);
      to->set_health(device.is_healthy ? "Healthy" : "Unhealthy");
      if (device.numa_node.has_value()) {
        to->mutable_topology()->add_nodes()->set_id(*device.numa_node);
      }
    }
    const std::lock_guard lock(mutex_);
    devices_ = std::move(devices);
    places_ = std::move(places);
    std::string text = list.SerializeAsString();
    if (text == text_ && version_ > 0) return;
    text_ = std::move(text);
    list_ = std::move(list);
    ++version_;
    changed_.notify_all();
  }

  // Streams end.
  void End() {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    changed_.notify_all();
  }
  void Begin() {
    const std::lock_guard lock(mutex_);
    is_ending_ = false;
  }

  grpc::Status GetDevicePluginOptions(grpc::ServerContext*, const v1beta1::Empty*,
                                      v1beta1::DevicePluginOptions* options) override {
    options->set_get_preferred_allocation_available(true);
    return grpc::Status::OK;
  }

  grpc::Status ListAndWatch(grpc::ServerContext* context, const v1beta1::Empty*,
                            grpc::ServerWriter<v1beta1::ListAndWatchResponse>* writer) override {
    int seen = 0;
    std::unique_lock lock(mutex_);
    while (!is_ending_ && !context->IsCancelled()) {
      if (seen != version_) {
        seen = version_;
        const v1beta1::ListAndWatchResponse list = list_;
        lock.unlock();
        const bool is_there = writer->Write(list);
        lock.lock();
        if (!is_there) break;
        continue;
      }
      changed_.wait_for(lock, std::chrono::milliseconds(500));  // and then whether it is cancelled
    }
    return grpc::Status::OK;
  }

  grpc::Status GetPreferredAllocation(grpc::ServerContext*,
                                      const v1beta1::PreferredAllocationRequest* request,
                                      v1beta1::PreferredAllocationResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& container : request->container_requests()) {
      const auto chosen = PreferredPlaces(
          places_, ListOf(container.available_deviceids()),
          ListOf(container.must_include_deviceids()),
          static_cast<size_t>(std::max(container.allocation_size(), 0)), options_.preference);
      auto* const to = response->add_container_responses();
      for (const std::string& id : chosen) to->add_deviceids(id);
    }
    return grpc::Status::OK;
  }

  grpc::Status Allocate(grpc::ServerContext*, const v1beta1::AllocateRequest* request,
                        v1beta1::AllocateResponse* response) override {
    const std::lock_guard lock(mutex_);
    for (const auto& container : request->container_requests()) {
      const Result<Grant> grant = GrantOf(devices_, places_, ListOf(container.devicesids()));
      if (!grant.ok()) return ToGrpc(grant.status());
      auto* const to = response->add_container_responses();
      for (const Variable& variable : grant->variables) {
        (*to->mutable_envs())[variable.name] = variable.value;
      }
      for (const FolderMount& mount : grant->mounts) {
        auto* const one = to->add_mounts();
        one->set_host_path(mount.host);
        one->set_container_path(mount.container);
        one->set_read_only(true);
      }
      for (const DeviceNode& node : grant->nodes) {
        auto* const one = to->add_devices();
        one->set_host_path(node.path);
        one->set_container_path(node.path);
        one->set_permissions("rw");
      }
    }
    return grpc::Status::OK;
  }

  grpc::Status PreStartContainer(grpc::ServerContext*, const v1beta1::PreStartContainerRequest*,
                                 v1beta1::PreStartContainerResponse*) override {
    return grpc::Status::OK;
  }

 private:
  const DevicePluginOptions& options_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<OfferedDevice> devices_;
  std::vector<Place> places_;
  v1beta1::ListAndWatchResponse list_;
  std::string text_;
  int version_ = 0;
  bool is_ending_ = false;
};

// Which file is at a path: numbers of files are used again, but not at the same time. {}: none.
struct FileIdentity {
  uint64_t number = 0;
  int64_t seconds = 0, nanoseconds = 0;
  bool operator==(const FileIdentity&) const = default;
};
constexpr FileIdentity kNoFile = {};
FileIdentity FileAt(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0) return kNoFile;
  return {status.st_ino, status.st_ctim.tv_sec, status.st_ctim.tv_nsec};
}

class Plugin final : public DevicePlugin {
 public:
  Plugin(DevicePluginOptions options, FileDescriptor stop)
      : options_(std::move(options)), stop_(std::move(stop)), service_(options_) {}

  Status Run() override {
    const FileDescriptor watch(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
    if (watch.get() < 0 ||
        inotify_add_watch(watch.get(), options_.folder.c_str(),
                          IN_CREATE | IN_DELETE | IN_MOVED_TO | IN_MOVED_FROM) < 0) {
      return {
          StatusCode::kNotFound,
          atollrt::Format("folder '%s' of device plugins: %s; is this a node of Kubernetes, and "
                          "is the folder mounted?",
                          options_.folder.c_str(), strerror(errno))};
    }
    for (;;) {
      service_.Set(options_.look());
      Mend();
      std::array<pollfd, 2> ready = {{{.fd = stop_.get(), .events = POLLIN, .revents = 0},
                                      {.fd = watch.get(), .events = POLLIN, .revents = 0}}};
      poll(ready.data(), ready.size(), kLookMs);
      if ((ready[0].revents & POLLIN) != 0) break;
      std::array<char, 4096> events;
      while (read(watch.get(), events.data(), events.size()) > 0) {  // Mend looks for itself
      }
    }
    EndServer();
    unlink(SocketPath().c_str());
    return {};
  }

  void Stop() override {
    const uint64_t one = 1;
    (void)!write(stop_.get(), &one, sizeof(one));
  }

 private:
  std::string SocketPath() const { return options_.folder + "/" + options_.socket_name; }
  std::string KubeletPath() const { return options_.folder + "/" + kKubelet; }

  // Serves and registers, if either is not as it was.
  void Mend() {
    const FileIdentity kubelet = FileAt(KubeletPath());
    if (server_ != nullptr &&
        (FileAt(SocketPath()) != own_file_ || own_file_ == kNoFile ||
         (kubelet != kNoFile && registered_with_ != kNoFile && kubelet != registered_with_))) {
      EndServer();
    }
    if (kubelet == kNoFile) {
      Say("waits for the kubelet: there is no " + KubeletPath());
      return;
    }
    if (server_ == nullptr && !Serve()) return;
    if (registered_with_ == kubelet) return;
    v1beta1::RegisterRequest request;
    request.set_version(kVersion);
    request.set_endpoint(options_.socket_name);
    request.set_resource_name(options_.resource);
    request.mutable_options()->set_get_preferred_allocation_available(true);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kRegisterTimeout);
    context.set_wait_for_ready(false);
    v1beta1::Empty nothing;
    const auto channel =
        grpc::CreateChannel("unix:" + KubeletPath(), grpc::InsecureChannelCredentials());
    const grpc::Status status =
        v1beta1::Registration::NewStub(channel)->Register(&context, request, &nothing);
    if (!status.ok()) {
      Say("cannot register with the kubelet, and will try again: " + status.error_message());
      return;
    }
    registered_with_ = kubelet;
    Say("offers " + options_.resource + " to the kubelet");
  }

  bool Serve() {
    unlink(SocketPath().c_str());
    service_.Begin();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + SocketPath(), grpc::InsecureServerCredentials());
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    own_file_ = FileAt(SocketPath());
    registered_with_ = kNoFile;
    if (server_ != nullptr) return true;
    Say("cannot listen at " + SocketPath() + "; has it the right to write there?");
    return false;
  }

  void EndServer() {
    if (server_ == nullptr) return;
    service_.End();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
    server_ = nullptr;
    registered_with_ = kNoFile;
  }

  // Each line once until another one is said.
  void Say(const std::string& line) {
    if (line == said_) return;
    said_ = line;
    if (options_.say) options_.say(line);
  }

  const DevicePluginOptions options_;
  const FileDescriptor stop_;
  Service service_;
  std::unique_ptr<grpc::Server> server_;
  FileIdentity own_file_;
  FileIdentity registered_with_;  // the kubelet's socket
  std::string said_;
};

}  // namespace

Result<std::unique_ptr<DevicePlugin>> DevicePlugin::Create(DevicePluginOptions options) {
  constexpr size_t kFolderBytes = 80;
  if (options.folder.empty() || options.folder.size() > kFolderBytes) {
    return InvalidArgument("a folder of device plugins has 1 to %zu bytes, '%s' has %zu",
                           kFolderBytes, options.folder.c_str(), options.folder.size());
  }
  if (options.shares < 1 || options.shares > 1000) {
    return InvalidArgument("a device has 1 to 1000 places, not %d", options.shares);
  }
  FileDescriptor stop(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  return std::unique_ptr<DevicePlugin>(new Plugin(std::move(options), std::move(stop)));
}

}  // namespace atollserve

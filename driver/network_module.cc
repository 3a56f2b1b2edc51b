// SPDX-License-Identifier: Apache-2.0
#include "driver/network_module.h"

#include <dlfcn.h>
#include <unistd.h>

#include <string_view>

namespace atollrt {
namespace {

constexpr char kFile[] = "libatoll-grpc.so.0";

// The folder of the library, or the program, that this function is in; "" if that is not known.
std::string OwnFolder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&LoadNetworkModule), &info) == 0 ||
      info.dli_fname == nullptr) {
    return "";
  }
  const std::string_view path = info.dli_fname;
  const size_t slash = path.rfind('/');
  return slash == path.npos ? "" : std::string(path.substr(0, slash + 1));
}

Result<const NetworkModule*> Load() {
  // Beside this library first, so that one of a tree of its own gets its own.
  void* handle = nullptr;
  if (const std::string folder = OwnFolder(); !folder.empty()) {
    const std::string path = folder + kFile;
    handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    // One that is there, and of no use, is not looked for elsewhere.
    if (handle == nullptr && access(path.c_str(), F_OK) == 0) {
      const char* const error = dlerror();
      return Unsupported("the module for devices of other computers cannot be loaded: %s",
                         error == nullptr ? path.c_str() : error);
    }
  }
  if (handle == nullptr) handle = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const error = dlerror();
    return NotFound(
        "devices of other computers need libatoll-grpc, which is in the package of that name, or "
        "built where libgrpc++-dev and protobuf-compiler-grpc are installed (%s)",
        error == nullptr ? "it cannot be loaded" : error);
  }
  const auto function =
      reinterpret_cast<NetworkModuleFunction>(dlsym(handle, kNetworkModuleSymbol));
  const NetworkModule* const module = function == nullptr ? nullptr : function();
  if (module == nullptr || module->interface != kNetworkInterface ||
      std::string_view(module->version) != ATOLL_VERSION_STRING) {
    return Unsupported("%s is of version %s, this library of %s; install both of one version",
                       kFile, module == nullptr ? "0" : module->version, ATOLL_VERSION_STRING);
  }
  return module;
}

}  // namespace

Result<const NetworkModule*> LoadNetworkModule() {
  static const auto* const loaded = new Result<const NetworkModule*>(Load());
  if (!loaded->ok()) return loaded->status();
  return **loaded;
}

}  // namespace atollrt

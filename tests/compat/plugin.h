// SPDX-License-Identifier: Apache-2.0
//
// The external delegate as runtimes load it.
#pragma once

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "compat/tflite/abi.h"

namespace atollrt {

class Plugin {
 public:
  using DelegatePtr = std::unique_ptr<TfLiteDelegate, void (*)(TfLiteDelegate*)>;
  using Create = TfLiteDelegate* (*)(char**, char**, size_t, void (*)(const char*));
  using Destroy = void (*)(TfLiteDelegate*);

  // Stays loaded until the process ends, as under most runtimes.
  static const Plugin& Get() {
    static const Plugin plugin;
    return plugin;
  }

  // What is reported becomes `reported`.
  DelegatePtr Make(const std::vector<std::pair<std::string, std::string>>& options,
                   std::string* reported = nullptr) const {
    std::vector<std::string> texts;
    for (const auto& [key, value] : options) {
      texts.push_back(key);
      texts.push_back(value);
    }
    std::vector<char*> keys;
    std::vector<char*> values;
    for (size_t i = 0; i < options.size(); ++i) {
      keys.push_back(texts[2 * i].data());
      values.push_back(texts[2 * i + 1].data());
    }
    Reported().clear();
    // The upper half of the count is garbage from Python.
    const size_t count = options.size() | 0xbad0'0000'0000'0000;
    DelegatePtr made(create(keys.data(), values.data(), count,
                            [](const char* message) { Reported() += message; }),
                     destroy);
    if (reported != nullptr) *reported = Reported();
    return made;
  }

  // One of libatoll's, as the plug-in has them.
  template <typename T>
  T* Function(const char* name) const {
    return reinterpret_cast<T*>(dlsym(library_, name));
  }

  Create create = nullptr;
  Destroy destroy = nullptr;

 private:
  Plugin() {
    if (library_ == nullptr) {
      std::fprintf(stderr, "%s\n", dlerror());
      std::abort();
    }
    create = reinterpret_cast<Create>(dlsym(library_, "tflite_plugin_create_delegate"));
    destroy = reinterpret_cast<Destroy>(dlsym(library_, "tflite_plugin_destroy_delegate"));
  }
  static std::string& Reported() {
    thread_local std::string reported;
    return reported;
  }

  void* const library_ = dlopen(ATOLL_TFLITE_DELEGATE, RTLD_NOW | RTLD_LOCAL);
};

}  // namespace atollrt

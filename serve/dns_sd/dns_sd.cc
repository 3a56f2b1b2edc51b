// SPDX-License-Identifier: Apache-2.0
#include "serve/dns_sd/dns_sd.h"

#include <avahi-client/client.h>
#include <avahi-client/lookup.h>
#include <avahi-client/publish.h>
#include <avahi-common/alternative.h>
#include <avahi-common/error.h>
#include <avahi-common/malloc.h>
#include <avahi-common/simple-watch.h>
#include <avahi-common/strlst.h>
#include <avahi-common/thread-watch.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <string_view>
#include <utility>

namespace atollserve {
namespace {

using atollrt::Clock;
using atollrt::Deadline;
using atollrt::Result;
using atollrt::Status;

constexpr size_t kMostServices = 256;
constexpr size_t kDescriptionBytes = 200;
constexpr char kDescriptionKey[] = "device";

Status NoDaemon(int error) {
  return atollrt::NotFound("Avahi's daemon cannot be asked (%s); install and start avahi-daemon",
                           avahi_strerror(error));
}

bool IsHostName(std::string_view name) {
  return !name.empty() && name.size() <= 253 && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

// Whether this computer's resolver finds a name: those in .local take a plug-in of it.
bool IsKnown(const std::string& host) {
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, nullptr, &found) != 0) return false;
  freeaddrinfo(found);
  return true;
}

std::string Printable(std::string text) {
  text.resize(std::min(text.size(), kDescriptionBytes));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';  // whether or not a char has a sign
  }
  return text;
}

std::string DescriptionOf(AvahiStringList* texts) {
  AvahiStringList* const found = avahi_string_list_find(texts, kDescriptionKey);
  char* key = nullptr;
  char* value = nullptr;
  if (found == nullptr || avahi_string_list_get_pair(found, &key, &value, nullptr) != 0) return "";
  std::string text = value == nullptr ? "" : Printable(value);
  avahi_free(key);
  avahi_free(value);
  return text;
}

std::string TextOf(const AvahiAddress& address, AvahiIfIndex interface) {
  char text[AVAHI_ADDRESS_STR_MAX] = {};
  avahi_address_snprint(text, sizeof(text), &address);
  if (address.proto != AVAHI_PROTO_INET6) return text;
  const bool is_of_link = address.data.ipv6.address[0] == 0xfe;  // and means nothing without it
  char link[IF_NAMESIZE] = {};
  if (!is_of_link || if_indextoname(static_cast<unsigned>(interface), link) == nullptr) {
    return std::string("[") + text + "]";
  }
  return std::string("[") + text + "%" + link + "]";
}

// ---- Looking ------------------------------------------------------------------------------------

class Browser {
 public:
  explicit Browser(const char* type) : type_(type), poll_(avahi_simple_poll_new()) {}
  ~Browser() {
    if (client_ != nullptr) avahi_client_free(client_);  // and all that belongs to it
    if (poll_ != nullptr) avahi_simple_poll_free(poll_);
  }
  Browser(const Browser&) = delete;
  Browser& operator=(const Browser&) = delete;

  Result<std::vector<AnnouncedService>> Run(Deadline deadline) {
    int error = 0;
    if (poll_ == nullptr) return NoDaemon(AVAHI_ERR_NO_MEMORY);
    client_ =
        avahi_client_new(avahi_simple_poll_get(poll_), AvahiClientFlags(0), OnClient, this, &error);
    if (client_ == nullptr) return NoDaemon(error);
    if (avahi_service_browser_new(client_, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, type_, nullptr,
                                  AvahiLookupFlags(0), OnService, this) == nullptr) {
      return NoDaemon(avahi_client_errno(client_));
    }
    // Each look at most so long; the daemon says when it knows of no more.
    constexpr std::chrono::milliseconds kLook{50};
    while (!has_failed_ && !(has_all_ && resolving_ == 0)) {
      const auto left =
          std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
      if (left.count() <= 0) break;
      if (avahi_simple_poll_iterate(poll_, static_cast<int>(std::min(left, kLook).count())) != 0) {
        break;
      }
    }
    if (has_failed_) return NoDaemon(avahi_client_errno(client_));
    std::vector<AnnouncedService> services;
    for (const auto& [name, found] : found_) {
      const bool by_name = Clock::now() < deadline && IsKnown(found.host);
      services.push_back(
          {.where = (by_name ? found.host : found.address) + ":" + std::to_string(found.port),
           .description = found.description});
    }
    return services;
  }

 private:
  static void OnClient(AvahiClient* client, AvahiClientState state, void* self) {
    (void)client;
    if (state == AVAHI_CLIENT_FAILURE) static_cast<Browser*>(self)->has_failed_ = true;
  }
  static void OnService(AvahiServiceBrowser* browser, AvahiIfIndex interface,
                        AvahiProtocol protocol, AvahiBrowserEvent event, const char* name,
                        const char* type, const char* domain, AvahiLookupResultFlags, void* user) {
    auto* const self = static_cast<Browser*>(user);
    switch (event) {
      case AVAHI_BROWSER_NEW:
        if (avahi_service_resolver_new(avahi_service_browser_get_client(browser), interface,
                                       protocol, name, type, domain, AVAHI_PROTO_UNSPEC,
                                       AvahiLookupFlags(0), OnResolved, user) != nullptr) {
          ++self->resolving_;
        }
        break;
      case AVAHI_BROWSER_ALL_FOR_NOW:
        self->has_all_ = true;
        break;
      case AVAHI_BROWSER_FAILURE:
        self->has_failed_ = true;
        break;
      default:
        break;
    }
  }
  static void OnResolved(AvahiServiceResolver* resolver, AvahiIfIndex interface, AvahiProtocol,
                         AvahiResolverEvent event, const char* name, const char*, const char*,
                         const char* host, const AvahiAddress* address, uint16_t port,
                         AvahiStringList* texts, AvahiLookupResultFlags, void* user) {
    auto* const self = static_cast<Browser*>(user);
    --self->resolving_;
    if (event == AVAHI_RESOLVER_FOUND && host != nullptr && IsHostName(host) && port != 0 &&
        self->found_.size() < kMostServices) {
      self->found_[name] = {.host = host,
                            .address = TextOf(*address, interface),
                            .port = port,
                            .description = DescriptionOf(texts)};
    }
    avahi_service_resolver_free(resolver);
  }

  struct Found {
    std::string host, address;
    uint16_t port = 0;
    std::string description;
  };

  const char* const type_;
  AvahiSimplePoll* const poll_;
  AvahiClient* client_ = nullptr;
  std::map<std::string, Found> found_;  // by name: on several interfaces it is one
  int resolving_ = 0;
  bool has_all_ = false;
  bool has_failed_ = false;
};

// ---- Announcing ---------------------------------------------------------------------------------

class Published final : public Announcement {
 public:
  Published(std::string name, uint16_t port, std::string description)
      : name_(std::move(name)), port_(port), description_(std::move(description)) {}
  ~Published() override {
    if (poll_ == nullptr) return;
    avahi_threaded_poll_stop(poll_);
    if (client_ != nullptr) avahi_client_free(client_);
    avahi_threaded_poll_free(poll_);
  }

  Status Start() {
    int error = AVAHI_ERR_NO_MEMORY;
    poll_ = avahi_threaded_poll_new();
    if (poll_ == nullptr) return NoDaemon(error);
    client_ = avahi_client_new(avahi_threaded_poll_get(poll_), AvahiClientFlags(0), OnClient, this,
                               &error);
    if (client_ == nullptr) return NoDaemon(error);
    if (avahi_threaded_poll_start(poll_) != 0) return NoDaemon(AVAHI_ERR_FAILURE);
    return {};
  }

 private:
  // On the poll's thread, or while the client is made.
  static void OnClient(AvahiClient* client, AvahiClientState state, void* user) {
    auto* const self = static_cast<Published*>(user);
    self->client_ = client;
    switch (state) {
      case AVAHI_CLIENT_S_RUNNING:
        self->Add();
        break;
      case AVAHI_CLIENT_S_COLLISION:
      case AVAHI_CLIENT_S_REGISTERING:
        if (self->group_ != nullptr) avahi_entry_group_reset(self->group_);
        break;
      case AVAHI_CLIENT_FAILURE:
        // The daemon has gone: a client that waits for the next one.
        if (avahi_client_errno(client) == AVAHI_ERR_DISCONNECTED) {
          avahi_client_free(client);
          self->group_ = nullptr;
          int error = 0;
          self->client_ = avahi_client_new(avahi_threaded_poll_get(self->poll_),
                                           AVAHI_CLIENT_NO_FAIL, OnClient, user, &error);
        }
        break;
      default:
        break;
    }
  }
  static void OnGroup(AvahiEntryGroup* group, AvahiEntryGroupState state, void* user) {
    auto* const self = static_cast<Published*>(user);
    self->group_ = group;
    if (state == AVAHI_ENTRY_GROUP_COLLISION) {
      self->Rename();
      self->Add();
    }
  }
  void Rename() {
    char* const other = avahi_alternative_service_name(name_.c_str());
    name_ = other;
    avahi_free(other);
  }
  void Add() {
    if (group_ == nullptr) group_ = avahi_entry_group_new(client_, OnGroup, this);
    if (group_ == nullptr || avahi_entry_group_is_empty(group_) == 0) return;
    const std::string text = std::string(kDescriptionKey) + "=" + Printable(description_);
    for (int tries = 0; tries < 100; ++tries) {
      const int error = avahi_entry_group_add_service(
          group_, AVAHI_IF_UNSPEC, AVAHI_PROTO_UNSPEC, AvahiPublishFlags(0), name_.c_str(),
          kDeviceService, nullptr, nullptr, port_, text.c_str(), nullptr);
      if (error != AVAHI_ERR_COLLISION) break;
      Rename();
    }
    avahi_entry_group_commit(group_);
  }

  std::string name_;
  const uint16_t port_;
  const std::string description_;
  AvahiThreadedPoll* poll_ = nullptr;
  AvahiClient* client_ = nullptr;
  AvahiEntryGroup* group_ = nullptr;
};

}  // namespace

Result<std::vector<AnnouncedService>> Browse(const char* type, Deadline deadline) {
  return Browser(type).Run(deadline);
}

Result<std::unique_ptr<Announcement>> Announcement::Publish(const std::string& name, uint16_t port,
                                                            const std::string& description) {
  auto published = std::make_unique<Published>(name, port, description);
  ATOLL_RETURN_IF_ERROR(published->Start());
  return std::unique_ptr<Announcement>(std::move(published));
}

}  // namespace atollserve

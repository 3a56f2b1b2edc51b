// SPDX-License-Identifier: Apache-2.0
//
// The names that a fleet has on NATS: subjects, streams, consumers, buckets, ids. docs/fleet.md has
// the table. Pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace atollserve {

inline constexpr const char* kFleetQueue = "atoll";  // of those that answer frames
inline constexpr const char* kWorkStream = "ATOLL_WORK";
inline constexpr const char* kResultStream = "ATOLL_RESULT";
inline constexpr const char* kDeadStream = "ATOLL_DEAD";  // what the server says of jobs it gave up
inline constexpr const char* kModelBucket = "atoll_models";         // objects
inline constexpr const char* kPlacementBucket = "atoll_placement";  // keys and values
inline constexpr const char* kWorkerBucket = "atoll_workers";       // keys and values
inline constexpr const char* kDefaultPlacement = "default";         // the key for all others
// 0 comes first.
inline constexpr int kPriorities = 3;

// The name of a model as one token of a subject, and a part of a consumer's name: letters, digits,
// '-' and '_' as they are, all others as %XX.
std::string EncodeToken(std::string_view text);
// nullopt unless EncodeToken gives `token` of it.
std::optional<std::string> DecodeToken(std::string_view token);
// A model's name whose token is short enough for the name of a consumer.
bool IsFleetModelName(std::string_view name);

// Of JetStream on some servers: 1 to 64 letters, digits, '-' and '_'.
bool IsDomain(std::string_view name);
// The same, but not "default".
bool IsWorkerId(std::string_view id);
// What this computer calls itself, made a worker's id, with something random behind it.
std::string MakeWorkerId(std::string_view host);

// 128 random bits in base64url: 22 characters.
std::string MakeJobId();
bool IsJobId(std::string_view id);

std::string Base64Url(std::string_view bytes);  // RFC 4648, section 5, with padding
std::optional<std::string> DecodeBase64Url(std::string_view text);  // with or without padding

std::string InferSubject(std::string_view model);  // of whoever is free
std::string InferSubject(std::string_view model, std::string_view worker);
std::string WorkSubject(std::string_view model, int priority);
std::string ResultSubject(std::string_view job);
// Says, when the result of a job is stored, that it is; has no contents.
std::string DoneSubject(std::string_view job);
std::string DrainSubject(std::string_view worker);
// Of a model's jobs of a priority.
std::string ConsumerName(std::string_view model, int priority);
// Where the value of a key is stored, and seen by whoever listens.
std::string KeySubject(std::string_view bucket, std::string_view key);

// The model and the priority of a job, by its subject; nullopt if it is none.
struct WorkAddress {
  std::string model;
  int priority = 0;
};
std::optional<WorkAddress> ParseWorkSubject(std::string_view subject);

}  // namespace atollserve

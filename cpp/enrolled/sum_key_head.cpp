#include "enrolled/sum_key_head.h"

#include <algorithm>
#include <string>

#include "common/error.h"
#include "scheme/fixed_point.h"

namespace shieldfl::enrolled {

void SumKeyHead::put(FrameWriter& writer) const {
  writer.put(clients);
  writer.put(unit);
  writer.put(count);
  writer.put_bytes(sum);
  writer.put_bytes(total_digest);
}

SumKeyHead SumKeyHead::read(FrameReader& reader) {
  SumKeyHead head;
  head.parameter_id = reader.header().parameter_id;
  head.key_id = reader.header().key_id;
  head.clients = reader.take<std::uint32_t>();
  head.unit = reader.take<std::uint32_t>();
  head.count = reader.take<std::uint64_t>();
  std::ranges::copy(reader.take_bytes(head.sum.size()), head.sum.begin());
  std::ranges::copy(reader.take_bytes(head.total_digest.size()), head.total_digest.begin());
  if (head.clients < 1 || head.clients > scheme::kMaxClients) {
    throw Error(ErrorCode::kWireFormat, "the sum key states what none has: it was altered");
  }
  return head;
}

SumKeyHead head_of_answer(const SumContext& context, std::span<const Participant> participants,
                          const Digest& total_digest, std::span<const ClientKey> keys) {
  if (keys.size() != participants.size()) {
    throw Error(ErrorCode::kParameter, "a sum key takes the key of each participant, and of nobody else");
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (keys[i].key_id() != context.layout.key_id || keys[i].client() != participants[i].client ||
        keys[i].round() != context.layout.round) {
      throw Error(ErrorCode::kKeyMismatch,
                  "client " + std::to_string(participants[i].client) +
                      "'s key is of another client, session or round than the request");
    }
  }
  SumKeyHead head;
  head.parameter_id = context.layout.parameter_id;
  head.key_id = context.layout.key_id;
  head.clients = static_cast<std::uint32_t>(participants.size());
  head.sum = sum_digest(context, participants);
  head.total_digest = total_digest;
  return head;
}

void check_answers(const SumKeyHead& answer, const SumContext& context,
                   std::span<const Participant> participants, const Digest& total_digest, std::uint32_t unit,
                   std::uint64_t count) {
  if (answer.parameter_id != context.layout.parameter_id) {
    throw Error(ErrorCode::kParameter, "the sum key was made with other parameters than this session's");
  }
  if (answer.key_id != context.layout.key_id) {
    throw Error(ErrorCode::kKeyMismatch, "the sum key was made in another session");
  }
  if (answer.sum != sum_digest(context, participants)) {
    throw Error(ErrorCode::kKeyMismatch,
                "the sum key is for another list of clients, round or selection of positions than the total");
  }
  if (answer.total_digest != total_digest) {
    throw Error(ErrorCode::kKeyMismatch,
                "the sum key is for another total: this one was changed after the authority's answer");
  }
  if (answer.clients != participants.size() || answer.unit != unit || answer.count != count) {
    throw Error(ErrorCode::kWireFormat,
                "the sum key is not as long as its total takes, or states other clients: it was altered");
  }
}

}  // namespace shieldfl::enrolled

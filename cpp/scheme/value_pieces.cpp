#include "scheme/value_pieces.h"

#include <algorithm>
#include <utility>

#include "common/verify.h"
#include "mask/bitset.h"

namespace shieldfl::scheme {

template <typename T>
ValuePieces<T>::ValuePieces(std::span<const T> whole) : ValuePieces(std::vector<std::span<const T>>{whole}) {}

template <typename T>
ValuePieces<T>::ValuePieces(std::vector<std::span<const T>> pieces) : pieces_(std::move(pieces)) {
  std::erase_if(pieces_, [](std::span<const T> piece) { return piece.empty(); });
  std::uint64_t end = 0;
  for (const std::span<const T> piece : pieces_) ends_.push_back(end += piece.size());
}

template <typename T>
typename ValuePieces<T>::Place ValuePieces<T>::locate(std::uint64_t position) const {
  VERIFY(position < size());
  const auto piece =
      static_cast<std::size_t>(std::upper_bound(ends_.begin(), ends_.end(), position) - ends_.begin());
  return {piece, ends_[piece] - pieces_[piece].size()};
}

template <typename T>
T ValuePieces<T>::operator[](std::uint64_t position) const {
  const auto [piece, begin] = locate(position);
  return pieces_[piece][position - begin];
}

template <typename T>
std::span<const T> ValuePieces<T>::read(std::uint64_t first, std::size_t count,
                                        SecretVector<T>& scratch) const {
  if (count == 0) return {};
  VERIFY(first + count <= size());
  auto [piece, begin] = locate(first);
  if (first + count <= ends_[piece]) return pieces_[piece].subspan(first - begin, count);
  scratch.resize(count);
  std::size_t offset = first - begin;
  for (auto out = scratch.begin(); out != scratch.end(); offset = 0, ++piece) {
    const auto left = static_cast<std::size_t>(scratch.end() - out);
    const auto part = pieces_[piece].subspan(offset, std::min(left, pieces_[piece].size() - offset));
    out = std::copy(part.begin(), part.end(), out);
  }
  return scratch;
}

template <typename T>
void ValuePieces<T>::gather(const mask::RankIndex& ranks, std::uint64_t first_rank, std::span<T> out) const {
  if (pieces_.size() == 1) {
    ranks.gather_values(pieces_.front(), first_rank, out.size(), out.data());
    return;
  }
  mask::check_same_size(ranks.size(), size());
  if (out.empty()) return;
  std::vector<std::uint32_t> positions(out.size());
  ranks.gather_positions(first_rank, positions.size(), positions.data());
  auto [piece, begin] = locate(positions.front());
  for (std::size_t i = 0; i < out.size(); ++i) {
    while (positions[i] >= ends_[piece]) begin = ends_[piece++];
    out[i] = pieces_[piece][positions[i] - begin];
  }
}

template class ValuePieces<float>;
template class ValuePieces<double>;

}  // namespace shieldfl::scheme

// Microsoft SEAL's own way through CKKS, as its examples and most federated-learning code use it: encode into
// slots, Encryptor, save, load, Evaluator, Decryptor, decode. It is there to be compared with in benchmarks;
// nothing of the library is built on it, and it keeps its key pair to itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace shieldfl::ckks {

// Ciphertexts as SEAL holds them in memory, and the number of values in them.
class SealCiphertexts {
 public:
  struct Implementation;
  explicit SealCiphertexts(std::unique_ptr<Implementation> implementation);
  SealCiphertexts(SealCiphertexts&&) noexcept;
  SealCiphertexts& operator=(SealCiphertexts&&) noexcept;
  ~SealCiphertexts();

  Implementation& implementation() { return *implementation_; }
  [[nodiscard]] const Implementation& implementation() const { return *implementation_; }

 private:
  std::unique_ptr<Implementation> implementation_;
};

// What SEAL wrote, one buffer for each ciphertext. A type of its own, and not bytes, so that SEAL's parser
// reads nothing but what SEAL wrote in this process.
class SealSavedCiphertexts {
 public:
  [[nodiscard]] std::size_t bytes() const;

 private:
  friend class SealGeneralPath;
  std::size_t values_ = 0;
  std::vector<std::vector<std::uint8_t>> buffers_;
};

class SealGeneralPath {
 public:
  // `prime_bits` as SEAL counts them: of several primes the last is reserved for key switching, which
  // ciphertexts pay for and never use. Throws Error(kParameter) for what SEAL refuses at 128 bits of
  // security.
  SealGeneralPath(std::size_t degree, std::span<const int> prime_bits, int log2_scale);
  ~SealGeneralPath();

  [[nodiscard]] std::size_t values_per_ciphertext() const;  // degree / 2

  // All of these split the ciphertexts over `threads` threads (0: all cores). The last ciphertext may be part
  // full.
  [[nodiscard]] SealCiphertexts encrypt(std::span<const float> values, std::size_t threads) const;
  // Uncompressed.
  [[nodiscard]] SealSavedCiphertexts save(const SealCiphertexts& ciphertexts, std::size_t threads) const;
  // With SEAL's checks.
  [[nodiscard]] SealCiphertexts load(const SealSavedCiphertexts& saved, std::size_t threads) const;
  // The same, each ciphertext added at once. Throws Error(kParameter) when the numbers of ciphertexts differ.
  void load_and_add(const SealSavedCiphertexts& saved, SealCiphertexts& sum, std::size_t threads) const;
  [[nodiscard]] std::vector<double> open(const SealCiphertexts& sum, std::size_t threads) const;

 private:
  struct Implementation;
  std::unique_ptr<Implementation> implementation_;
};

}  // namespace shieldfl::ckks

// Encryption of masked updates under a client's own key.
#pragma once

#include "enrolled/encryptor.h"
#include "kahe/block_encryption.h"

namespace shieldfl::kahe {

using enrolled::EncryptOptions;
using Encryptor = enrolled::Encryptor<PublicKey, BlockEncryption>;

}  // namespace shieldfl::kahe

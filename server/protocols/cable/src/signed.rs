//! Signed stream names of Turbo, in the format of `ActiveSupport::MessageVerifier` with SHA-256 and JSON: the name as
//! JSON in Base64, `--`, and the HMAC of the Base64 text in hexadecimal digits.
//!
//! Why: `turbo_stream_from` puts such a name into the page, so a subscription to it needs no Ruby.

use base64::Engine;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};

use crate::secret_key::SecretKey;

const LENIENT: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LENIENT);

/// Verifies signed names with one secret.
#[derive(Debug, Clone)]
pub struct SignedNames(SecretKey);

impl SignedNames {
    /// Creates a verifier with the key of `Turbo.signed_stream_verifier_key`.
    pub fn new(secret: &str) -> SignedNames {
        SignedNames(SecretKey::new(secret))
    }

    /// Returns the name if the signature is right. A name with a purpose or an expiry is not one of Turbo.
    pub fn verify(&self, signed: &str) -> Option<String> {
        serde_json::from_slice(&self.data(signed)?).ok()
    }

    /// Returns the JSON that was signed, if the signature is right.
    pub(crate) fn data(&self, signed: &str) -> Option<Vec<u8>> {
        let (data, digest) = signed.rsplit_once("--")?;
        let digest: [u8; 32] = text::from_hex(digest)?;
        if !self.0.has_signed(data, &digest) {
            return None;
        }
        STANDARD.decode(data).or_else(|_| URL_SAFE.decode(data)).ok()
    }
}

/// Signs JSON as Rails does.
#[cfg(test)]
pub(crate) fn signed(secret: &str, json: &str) -> String {
    let data = STANDARD.encode(json);
    format!("{data}--{}", text::hex(&SecretKey::new(secret).sign(&data)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ActiveSupport::MessageVerifier.new("secret", digest: "SHA256", serializer: JSON).generate("room:1")`
    const SIGNED: &str = "InJvb206MSI=--bff11d45b76e9b980cb31b0eda13d83a55e9f5689a5b7b9fd8fc7936c27123e9";

    #[test]
    fn a_name_signed_by_rails_is_verified() {
        let names = SignedNames::new("secret");
        assert_eq!(names.verify(SIGNED).as_deref(), Some("room:1"));
        assert_eq!(signed("secret", "\"room:1\""), SIGNED);
        assert_eq!(SignedNames::new("another").verify(SIGNED), None);
        for wrong in ["", "--", "InJvb206MSI=", "InJvb206MSI=--", "InJvb206MSI=--zz", "InJvb206MiI=--00"] {
            assert_eq!(names.verify(wrong), None, "{wrong}");
        }
        let (data, digest) = SIGNED.split_once("--").unwrap();
        assert_eq!(names.verify(&format!("{data}x--{digest}")), None);
        assert_eq!(names.verify(&SIGNED[..SIGNED.len() - 2]), None);
    }
}

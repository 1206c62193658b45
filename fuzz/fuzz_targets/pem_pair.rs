//! Certificates and keys from files, and what they say: any bytes are survived, and what is accepted can be shown.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::time::SystemTime;
use tls::Certificate;
use trust::Secret;

fuzz_target!(|pair: (Vec<u8>, Vec<u8>)| {
    let (chain, key) = pair;
    let (chain, key) = (Secret::from(chain), Secret::from(key));
    match Certificate::from_pem(&chain, &key) {
        Ok(certificate) => {
            let facts = certificate.facts();
            assert!(!facts.subject.contains(char::is_control) && facts.chain > 0);
            let _ = certificate.warnings(SystemTime::now());
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
});

//! Addresses of control servers, as `control`, `--listen` and the file of `top --fleet` have them: no text makes the reader panic, and what
//! is read is displayed so that it reads back as the same. Run with `make fuzz FUZZ=control_address`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use settings::ControlAddress;

fuzz_target!(|text: &str| {
    let Ok(address) = text.parse::<ControlAddress>() else { return };
    assert_eq!(address.to_string().parse::<ControlAddress>(), Ok(address));
});

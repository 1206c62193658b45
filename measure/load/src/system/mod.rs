//! Differences between Linux and other systems: a timer precise to about ten microseconds, because tokio's
//! timers have a resolution of one millisecond.
//!
//! Contract: [`Timer::sleep`] returns after that time, never before. The future may be dropped and `sleep`
//! called again.

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
mod linux;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
mod portable;

#[cfg(all(target_os = "linux", not(firebrick_portable)))]
pub(crate) use linux::*;
#[cfg(any(not(target_os = "linux"), firebrick_portable))]
pub(crate) use portable::*;

#[cfg(test)]
mod tests {
    use super::Timer;
    use std::time::{Duration, Instant};

    #[tokio::test]
    async fn sleeps_never_end_early() {
        let timer = Timer::new().unwrap();
        for micros in [0, 50, 700, 3_000] {
            let (begun, time) = (Instant::now(), Duration::from_micros(micros));
            timer.sleep(time).await.unwrap();
            assert!(begun.elapsed() >= time, "{time:?}");
        }
        let dropped = tokio::time::timeout(Duration::from_millis(5), timer.sleep(Duration::from_secs(60)));
        assert!(dropped.await.is_err());
        timer.sleep(Duration::from_millis(1)).await.unwrap();
    }
}

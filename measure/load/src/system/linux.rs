//! A timerfd in the event loop.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

pub(crate) struct Timer(AsyncFd<OwnedFd>);

impl Timer {
    /// # Errors
    /// No timer can be created.
    pub(crate) fn new() -> io::Result<Timer> {
        let timer =
            timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        // Deprecated for types that might close their descriptor while registered; an owned descriptor does not.
        #[allow(deprecated)]
        Ok(Timer(AsyncFd::with_interest(timer, tokio::io::Interest::READABLE)?))
    }

    /// # Errors
    /// The system's, if the timer cannot be used.
    pub(crate) async fn sleep(&self, duration: Duration) -> io::Result<()> {
        let value = Timespec::try_from(duration.max(Duration::from_nanos(1)))
            .map_err(|_| io::ErrorKind::InvalidInput)?;
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: value };
        // Setting it also clears an expiration that was not read.
        timerfd_settime(self.0.get_ref(), TimerfdTimerFlags::empty(), &once)?;
        loop {
            let mut guard = self.0.readable().await?;
            let mut expirations = [0; 8];
            let read = guard.try_io(|timer| Ok(rustix::io::read(timer.get_ref(), &mut expirations)?));
            match read {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Err(_not_yet) => {}
            }
        }
    }
}

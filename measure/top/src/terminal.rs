//! Takes over the terminal, and restores it in all cases.
//!
//! Contract: whenever this process is not running (ended, suspended, panicked), the terminal is in its normal
//! mode, on its normal screen, with a visible cursor. When the terminal closes, the process ends.

use crossterm::cursor::{Hide, Show};
use crossterm::event::{self, Event};
use crossterm::execute;
use crossterm::terminal::{EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode};
use ratatui::Terminal;
use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::buffer::Buffer;
use rustix::event::{PollFd, PollFlags, poll};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use signal_hook::flag;
use signal_hook::low_level::emulate_default_handler;
use std::io::{self, Stdout, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

/// The time that the screen has to end by itself after the terminal has closed.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Owns the terminal until dropped.
pub(crate) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
    signals: Signals,
}

struct Signals {
    /// The signal that ends the program; 0 if none.
    end: Arc<AtomicUsize>,
    stop: Arc<AtomicBool>,
    resumed: Arc<AtomicBool>,
}

pub(crate) enum TerminalEvent {
    Nothing,
    Key(event::KeyEvent),
    /// The size changed, or a redraw is needed.
    Changed,
    /// This signal ends the program.
    End(i32),
    /// The user suspends the program.
    Suspend,
}

impl Screen {
    pub(crate) fn open() -> io::Result<Screen> {
        let signals = Signals::listen()?;
        restore_after_panics();
        end_with_the_terminal(signals.end.clone())?;
        let terminal = Terminal::new(CrosstermBackend::new(stdout()))?;
        let mut screen = Screen { terminal, signals };
        screen.enter()?;
        Ok(screen)
    }

    pub(crate) fn draw(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        self.terminal.draw(|frame| draw(frame.buffer_mut())).map(drop)
    }

    /// Waits for an event for at most `timeout`.
    pub(crate) fn wait(&mut self, timeout: Duration) -> io::Result<TerminalEvent> {
        match self.signals.end.load(SeqCst) {
            0 => {}
            signal => return Ok(TerminalEvent::End(i32::try_from(signal).unwrap_or(SIGTERM))),
        }
        if self.signals.stop.swap(false, SeqCst) {
            return Ok(TerminalEvent::Suspend);
        }
        if self.signals.resumed.swap(false, SeqCst) {
            // After a SIGSTOP other programs have used the terminal.
            self.enter()?;
            return Ok(TerminalEvent::Changed);
        }
        if !event::poll(timeout)? {
            return Ok(TerminalEvent::Nothing);
        }
        Ok(match event::read()? {
            Event::Key(key) => TerminalEvent::Key(key),
            Event::Resize(..) => TerminalEvent::Changed,
            _ => TerminalEvent::Nothing,
        })
    }

    /// Restores the terminal, stops as the shell expects, and takes the terminal over again when continued.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        leave()?;
        emulate_default_handler(SIGTSTP)?;
        self.signals.resumed.store(false, SeqCst);
        self.enter()
    }

    /// Redraws everything.
    ///
    /// Does not use `Terminal::clear`, which queries the cursor position: not every terminal responds, and
    /// keys typed meanwhile disturb it.
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        let mut backend = CrosstermBackend::new(stdout());
        backend.clear_region(ClearType::All)?;
        self.terminal = Terminal::new(backend)?;
        Ok(())
    }

    /// Ends with the signal's default action, so that the shell sees the reason.
    pub(crate) fn end_by(self, signal: i32) -> io::Result<()> {
        drop(self);
        emulate_default_handler(signal)
    }

    fn enter(&mut self) -> io::Result<()> {
        enable_raw_mode()?;
        execute!(stdout(), EnterAlternateScreen, Hide)?;
        self.redraw()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The terminal may be gone.
        let _ = leave();
    }
}

fn leave() -> io::Result<()> {
    let shown = execute!(stdout(), LeaveAlternateScreen, Show);
    disable_raw_mode().and(shown)
}

/// Ends the process when the terminal closes (an SSH connection ends, a window is closed).
///
/// Runs on its own thread, because the reader of keys then reads end of file again and again and checks
/// nothing else. The hang-up signal may have come earlier, may be ignored by the parent process, or may not
/// come at all.
fn end_with_the_terminal(end: Arc<AtomicUsize>) -> io::Result<()> {
    let watch = move || {
        let terminal = rustix::stdio::stdin();
        // Waits for the hang-up alone, which is always reported.
        let mut ended = [PollFd::new(&terminal, PollFlags::empty())];
        loop {
            match poll(&mut ended, None) {
                Err(rustix::io::Errno::INTR) => {}
                Err(_) => return,
                Ok(_) if ended[0].revents().intersects(PollFlags::HUP | PollFlags::ERR) => break,
                // Some systems report it with other flags; unread input also wakes this thread.
                Ok(_) => thread::sleep(LAST_WORDS),
            }
        }
        end.store(SIGHUP as usize, SeqCst);
        thread::sleep(LAST_WORDS);
        let _ = emulate_default_handler(SIGHUP);
    };
    thread::Builder::new().name("terminal".to_owned()).spawn(watch).map(drop)
}

/// Makes panic messages appear on the normal screen.
fn restore_after_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let _ = leave();
        before(info);
    }));
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let end = Arc::new(AtomicUsize::new(0));
        for signal in [SIGTERM, SIGHUP, SIGINT, SIGQUIT] {
            flag::register_usize(signal, Arc::clone(&end), signal as usize)?;
        }
        let (stop, resumed) = (Arc::default(), Arc::default());
        flag::register(SIGTSTP, Arc::clone(&stop))?;
        flag::register(SIGCONT, Arc::clone(&resumed))?;
        Ok(Signals { end, stop, resumed })
    }
}

//! The start: the first template loads the app before there are workers.

use super::*;
use crate::spawner::TemplateMessage;

/// The template's first message about the app.
type First = Option<io::Result<Option<TemplateMessage>>>;

impl Supervisor {
    /// Starts the first template and waits until it has loaded the app, for no longer than `timeouts.worker_boot`.
    ///
    /// # Errors
    /// See [`BootError`].
    pub async fn boot(options: Options) -> Result<Supervisor, BootError> {
        let limit = options.timeouts().worker_boot;
        if !options.source().starts_server {
            orphans::adopt();
        }
        let mut supervisor = Supervisor::new(options).map_err(BootError::Template)?;
        supervisor.start_template(FIRST, FIRST_RELEASE).map_err(BootError::Template)?;
        let until = tokio::time::Instant::now() + limit;
        supervisor.first_boot(until - asks_before(limit), until).await?;
        Ok(supervisor)
    }

    /// Waits for the template's first message about the app. Requests the template's backtrace at `ask`, and
    /// gives up at `until`.
    async fn first_message(
        &mut self,
        ask: tokio::time::Instant,
        until: tokio::time::Instant,
    ) -> Result<First, BootError> {
        let (mut asked, mut loading) = (false, None);
        loop {
            let reports = &mut self.inbox.templates.1;
            match tokio::time::timeout_at(if asked { until } else { ask }, reports.recv()).await {
                Ok(Some((_, Ok(Some(TemplateMessage::Loading(text)))))) => loading = Some(text),
                // A caller of the upgrade learns of it when it is over.
                Ok(Some((_, Ok(Some(TemplateMessage::Warming(_)))))) => {}
                Ok(report) => return Ok(report.map(|(_, message)| message)),
                Err(_) if asked => return Err(BootError::Slow(loading)),
                Err(_) => {
                    asked = true;
                    self.templates.values().for_each(|template| template.process.ask_where());
                }
            }
        }
    }

    async fn first_boot(
        &mut self,
        ask: tokio::time::Instant,
        until: tokio::time::Instant,
    ) -> Result<(), BootError> {
        let error = match self.first_message(ask, until).await? {
            Some(Ok(Some(TemplateMessage::Booted(booted)))) => {
                if let Some(text) = &booted.warmed {
                    self.log(format!("the app is loaded; {text}"));
                }
                self.app_loaded(FIRST, booted.facts, &booted.jobs);
                return Ok(());
            }
            Some(Ok(Some(TemplateMessage::Failed(text)))) => BootError::App(text),
            Some(Ok(Some(other))) => {
                BootError::Template(io::Error::other(format!("the template's first message was {other:?}")))
            }
            Some(Ok(None)) | None => {
                let code = match self.templates.get_mut(&FIRST) {
                    Some(template) => template.process.exited().await,
                    None => None,
                };
                let how = code.map_or("by a signal".to_owned(), |code| format!("with exit code {code}"));
                BootError::Template(io::Error::other(format!(
                    "the template ended {how} while it loaded the app"
                )))
            }
            Some(Err(e)) => BootError::Template(e),
        };
        if matches!(error, BootError::App(_))
            && let Some(template) = self.templates.get_mut(&FIRST)
        {
            template.process.exited().await;
        }
        Err(error)
    }
}

//! A CA and the account at this CA: [`Ca`].
//!
//! Contract:
//! 1. A store has one account. It is created under a lease when the first order needs it, and used from then on.
//! 2. An account that the CA no longer knows is created again, with the same key if possible.
//! 3. At the staging directory, the account uses the key of production, so that every machine can answer its
//!    challenges.
//! 4. An account that cannot be saved is used all the same.

use crate::challenge::HttpAnswers;
use crate::client::CaClient;
use crate::schedule::OrderFault;
use crate::store::{CertificateStore, Item};
use crate::trouble::Trouble;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, Key, NewAccount};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use settings::ExternalAccount;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Mutex;
use trust::{Secret, TextPosition};

/// The lease for creating an account.
const ACCOUNT: &str = "account";
/// How long other machines need to learn the key of a new account. They check every two seconds.
const SPREAD: Duration = Duration::from_secs(5);
/// How often to check whether another machine has created the account, once per second.
const PATIENCE: u32 = 60;

/// An account as it is stored.
#[derive(Serialize, Deserialize)]
struct Record {
    /// The thumbprint of the account's key (RFC 7638), which answers HTTP-01.
    thumbprint: String,
    /// In the format of `instant-acme`.
    credentials: AccountCredentials,
}

/// A CA and the account at this CA.
pub struct Ca {
    directory: String,
    client: CaClient,
    store: Rc<dyn CertificateStore>,
    email: Option<String>,
    eab: Option<ExternalAccount>,
    answers: HttpAnswers,
    /// For staging: the store with the key.
    production: Option<Rc<dyn CertificateStore>>,
    account: Mutex<Option<Account>>,
    log: Rc<dyn Fn(&str)>,
}

impl Ca {
    /// Creates a client of the directory. Sends nothing yet.
    pub fn new(
        directory: &str,
        client: CaClient,
        store: Rc<dyn CertificateStore>,
        acme: &settings::Acme,
        answers: HttpAnswers,
        log: Rc<dyn Fn(&str)>,
    ) -> Ca {
        Ca {
            directory: directory.to_owned(),
            client,
            store,
            email: acme.email.clone(),
            eab: acme.eab.clone(),
            answers,
            production: None,
            account: Mutex::default(),
            log,
        }
    }

    /// Returns the staging directory of this CA, with its own store.
    pub fn staging(&self, directory: &str, store: Rc<dyn CertificateStore>) -> Ca {
        Ca {
            directory: directory.to_owned(),
            client: self.client.clone(),
            store,
            email: self.email.clone(),
            eab: None,
            answers: self.answers.clone(),
            production: Some(self.store.clone()),
            account: Mutex::default(),
            log: self.log.clone(),
        }
    }

    pub fn client(&self) -> &CaClient {
        &self.client
    }

    /// Returns the answers to HTTP-01.
    pub fn answers(&self) -> &HttpAnswers {
        &self.answers
    }

    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Answers the challenges of other machines' orders, as soon as an account is stored.
    pub async fn learn_thumbprint(&self) {
        if let Ok(Some(record)) = self.stored().await {
            self.answers.set_thumbprint(&record.thumbprint);
        }
    }

    /// Returns the account, with a directory that was read after the last failure.
    ///
    /// # Errors
    /// The CA does not respond, refuses the account, or sends an invalid response.
    pub async fn account(&self) -> Result<Account, Trouble> {
        let mut account = self.account.lock().await;
        if let Some(account) = &*account {
            return Ok(account.clone());
        }
        self.client.forget_last();
        let opened = self.open().await?;
        self.answers.set_thumbprint(opened.key_thumbprint());
        *account = Some(opened.clone());
        Ok(opened)
    }

    /// Makes the next call read the directory again, after a failure.
    pub async fn forget(&self) {
        *self.account.lock().await = None;
    }

    /// Creates the account again that the CA no longer knows.
    ///
    /// # Errors
    /// See [`Ca::account`].
    pub async fn register_again(&self) -> Result<(), Trouble> {
        let mut account = self.account.lock().await;
        *account = None;
        let key = self.stored().await.ok().flatten().filter(|_| self.eab.is_none());
        let made = match key {
            Some(record) => self.register_key(record.credentials.private_key().secret_pkcs8_der()).await?,
            None => self.register().await?,
        };
        self.answers.set_thumbprint(made.key_thumbprint());
        *account = Some(made);
        Ok(())
    }

    async fn open(&self) -> Result<Account, Trouble> {
        for _ in 0..PATIENCE {
            match self.stored().await {
                Ok(Some(record)) => {
                    let builder = Account::builder_with_http(Box::new(self.client.clone()));
                    let opened = builder.from_credentials(record.credentials).await;
                    return opened.map_err(|error| self.trouble(&error));
                }
                Ok(None) => {}
                Err(why) => (self.log)(&format!("the account at {} is made anew: {why}", self.directory)),
            }
            match self.store.lease(ACCOUNT).await {
                Ok(Some(lease)) => {
                    // Another server may just have created it.
                    let made = match self.stored().await {
                        Ok(Some(_)) => None,
                        _ => Some(self.make().await),
                    };
                    lease.release().await;
                    if let Some(made) = made {
                        return made;
                    }
                }
                Ok(None) => tokio::time::sleep(Duration::from_secs(1)).await,
                // Without a lease the account cannot be shared, but it can be used.
                Err(why) => {
                    (self.log)(&format!("certificates: {why}"));
                    return self.make().await;
                }
            }
        }
        Err(Trouble::new(
            OrderFault::Unreachable,
            format!("another server has been making the account at {} for a minute", self.directory),
        ))
    }

    /// Returns the stored account, if any.
    async fn stored(&self) -> Result<Option<Record>, String> {
        read(&*self.store).await
    }

    async fn make(&self) -> Result<Account, Trouble> {
        let key = match &self.production {
            Some(store) => read(&**store).await.ok().flatten(),
            None => None,
        };
        let made = match key {
            Some(record) => self.register_key(record.credentials.private_key().secret_pkcs8_der()).await?,
            None => self.register().await?,
        };
        if self.store.is_shared() {
            // The CA may ask any machine for the answer to a challenge, and that machine needs the key.
            tokio::time::sleep(SPREAD).await;
        }
        Ok(made)
    }

    async fn register(&self) -> Result<Account, Trouble> {
        let contact = self.email.as_ref().map(|email| format!("mailto:{email}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new =
            NewAccount { contact: &contact, terms_of_service_agreed: true, only_return_existing: false };
        let eab = self.eab.as_ref().map(external_key).transpose()?;
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let made = builder.create(&new, self.directory.clone(), eab.as_ref()).await;
        let (account, credentials) = made.map_err(|error| self.trouble(&error))?;
        self.save(&account, credentials).await;
        Ok(account)
    }

    async fn register_key(&self, pkcs8: &[u8]) -> Result<Account, Trouble> {
        let der = PrivatePkcs8KeyDer::from(pkcs8.to_vec());
        let key = Key::from_pkcs8_der(der.clone_key()).map_err(|_| {
            Trouble::new(
                OrderFault::Refused,
                "the key of the stored account cannot be used (expected ECDSA P-256)",
            )
        })?;
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let made = builder.create_from_key((key, PrivateKeyDer::Pkcs8(der)), self.directory.clone()).await;
        let (account, credentials) = made.map_err(|error| self.trouble(&error))?;
        if let Some(email) = &self.email {
            // The contact address is optional.
            let _ = account.update_contacts(&[&format!("mailto:{email}")]).await;
        }
        self.save(&account, credentials).await;
        Ok(account)
    }

    async fn save(&self, account: &Account, credentials: AccountCredentials) {
        let record = Record { thumbprint: account.key_thumbprint().to_owned(), credentials };
        // Serializing this record cannot fail.
        let bytes = serde_json::to_vec_pretty(&record).unwrap_or_default();
        if let Err(why) = self.store.save(&Item::Account, &bytes).await {
            (self.log)(&format!(
                "certificates: the account cannot be kept, so that a restart makes another one: {why}"
            ));
        }
    }

    fn trouble(&self, error: &instant_acme::Error) -> Trouble {
        Trouble::of_account(error, self.eab.is_some(), &self.client.last())
    }
}

async fn read(store: &dyn CertificateStore) -> Result<Option<Record>, String> {
    let Some(bytes) = store.load(&Item::Account).await.map_err(|why| why.0)? else { return Ok(None) };
    // The text contains the account's key, which must not appear in an error message.
    let record = Secret::from(bytes).parse(|bytes| {
        serde_json::from_slice(bytes)
            .map_err(|error| TextPosition { line: error.line(), column: error.column() })
    });
    record.map(Some).map_err(|place| format!("what is stored in {} is no account{place}", store.describe()))
}

/// Decodes the key that the CA has given. CAs write it with and without padding, and in both alphabets.
fn external_key(eab: &ExternalAccount) -> Result<ExternalAccountKey, Trouble> {
    let decoded = BASE64_URL_SAFE_NO_PAD
        .decode(&eab.hmac)
        .or_else(|_| BASE64_URL_SAFE.decode(&eab.hmac))
        .or_else(|_| BASE64_STANDARD.decode(&eab.hmac));
    match decoded {
        Ok(key) => Ok(ExternalAccountKey::new(eab.kid.clone(), &key)),
        Err(_) => Err(Trouble::new(
            OrderFault::Refused,
            "acme.eab_hmac is not base64url: copy it as the CA shows it, without quotation marks",
        )),
    }
}

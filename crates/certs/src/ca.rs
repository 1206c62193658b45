//! A CA and our account there: [`Ca`].
//!
//! Contract:
//! 1. There is one account for a store. It is made when the first order needs it, under a lease, and used from then on.
//! 2. An account that the CA no longer knows is made again, with the same key where that is possible.
//! 3. The staging directory gets an account with the key of production, so that every machine answers its challenges.
//! 4. An account that cannot be saved is used anyway.

use crate::challenge::HttpAnswers;
use crate::client::Client;
use crate::schedule::Fault;
use crate::store::{Item, Store};
use crate::trouble::Trouble;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD, Engine};
use instant_acme::{Account, AccountCredentials, ExternalAccountKey, Key, NewAccount};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use serde::{Deserialize, Serialize};
use settings::ExternalAccount;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Mutex;
use trust::{Place, Secret};

/// The lease under which an account is made.
const ACCOUNT: &str = "account";
/// How long other machines need to learn the key of a new account; they look every two seconds.
const SPREAD: Duration = Duration::from_secs(5);
/// How often it is looked whether another machine has made the account, with a second between.
const PATIENCE: u32 = 60;

/// What is stored of an account.
#[derive(Serialize, Deserialize)]
struct Record {
    /// Of its key (RFC 7638): what answers HTTP-01.
    thumbprint: String,
    /// As `instant-acme` reads it.
    credentials: AccountCredentials,
}

/// A CA and our account there.
pub struct Ca {
    directory: String,
    client: Client,
    store: Rc<dyn Store>,
    email: Option<String>,
    eab: Option<ExternalAccount>,
    answers: HttpAnswers,
    /// For staging: where the key is.
    production: Option<Rc<dyn Store>>,
    account: Mutex<Option<Account>>,
    log: Rc<dyn Fn(&str)>,
}

impl Ca {
    /// The CA of a directory; nothing is asked yet.
    pub fn new(
        directory: &str,
        client: Client,
        store: Rc<dyn Store>,
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

    /// The staging directory of this CA, with its own store.
    pub fn staging(&self, directory: &str, store: Rc<dyn Store>) -> Ca {
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

    /// Its client.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The answers to HTTP-01.
    pub fn answers(&self) -> &HttpAnswers {
        &self.answers
    }

    /// The address of its directory.
    pub fn directory(&self) -> &str {
        &self.directory
    }

    /// Lets challenges be answered that other machines have ordered, as soon as an account is stored.
    pub async fn learn_thumbprint(&self) {
        if let Ok(Some(record)) = self.stored().await {
            self.answers.set_thumbprint(&record.thumbprint);
        }
    }

    /// Our account there, with a directory that was read since the last failure.
    ///
    /// # Errors
    /// The CA is away, refuses the account, or answers nonsense.
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

    /// After a failure: reads the directory again next time.
    pub async fn forget(&self) {
        *self.account.lock().await = None;
    }

    /// Makes the account again that the CA no longer knows.
    ///
    /// # Errors
    /// As [`Ca::account`].
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
                    // Another server may just have made it.
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
                // What cannot be locked cannot be shared either; the account is used anyway.
                Err(why) => {
                    (self.log)(&format!("certificates: {why}"));
                    return self.make().await;
                }
            }
        }
        Err(Trouble::new(
            Fault::Unreachable,
            format!("another server has been making the account at {} for a minute", self.directory),
        ))
    }

    /// The stored account; `None` when there is none.
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
            // Any machine may be asked for the answer to a challenge, and needs the key for it.
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
                Fault::Refused,
                "the key of the stored account cannot be used (expected ECDSA P-256)",
            )
        })?;
        let builder = Account::builder_with_http(Box::new(self.client.clone()));
        let made = builder.create_from_key((key, PrivateKeyDer::Pkcs8(der)), self.directory.clone()).await;
        let (account, credentials) = made.map_err(|error| self.trouble(&error))?;
        if let Some(email) = &self.email {
            // An account without an address is an account.
            let _ = account.update_contacts(&[&format!("mailto:{email}")]).await;
        }
        self.save(&account, credentials).await;
        Ok(account)
    }

    async fn save(&self, account: &Account, credentials: AccountCredentials) {
        let record = Record { thumbprint: account.key_thumbprint().to_owned(), credentials };
        // Nothing in it can fail to be written.
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

async fn read(store: &dyn Store) -> Result<Option<Record>, String> {
    let Some(bytes) = store.load(&Item::Account).await.map_err(|why| why.0)? else { return Ok(None) };
    // The account's key is in it, which the library would quote.
    let record = Secret::from(bytes).parse(|bytes| {
        serde_json::from_slice(bytes).map_err(|error| Place { line: error.line(), column: error.column() })
    });
    record.map(Some).map_err(|place| format!("what is stored in {} is no account{place}", store.describe()))
}

/// The key that the CA has given; CAs write it with and without padding, and in both alphabets.
fn external_key(eab: &ExternalAccount) -> Result<ExternalAccountKey, Trouble> {
    let decoded = BASE64_URL_SAFE_NO_PAD
        .decode(&eab.hmac)
        .or_else(|_| BASE64_URL_SAFE.decode(&eab.hmac))
        .or_else(|_| BASE64_STANDARD.decode(&eab.hmac));
    match decoded {
        Ok(key) => Ok(ExternalAccountKey::new(eab.kid.clone(), &key)),
        Err(_) => Err(Trouble::new(
            Fault::Refused,
            "acme.eab_hmac is not base64url: copy it as the CA shows it, without quotation marks",
        )),
    }
}

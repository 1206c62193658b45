//! Known crawlers, by the product names in `User-Agent` (RFC 9110 section 10.1.5).
//!
//! Why a list, and no pattern such as "bot": customers' programs have such names, too. A crawler that uses a
//! browser's name is not recognised. Another program that uses a crawler's name waits longer, which is its
//! own fault.

/// Product names in lower case, in order.
const KNOWN: [&str; 62] = [
    "adsbot-google",
    "adsbot-google-mobile",
    "ahrefsbot",
    "amazonbot",
    "apis-google",
    "applebot",
    "archive.org_bot",
    "awariobot",
    "baiduspider",
    "barkrowler",
    "bingbot",
    "bingpreview",
    "blexbot",
    "bytespider",
    "ccbot",
    "chatgpt-user",
    "claude-searchbot",
    "claude-user",
    "claudebot",
    "coccocbot-web",
    "cohere-ai",
    "dataforseobot",
    "diffbot",
    "dotbot",
    "duckassistbot",
    "duckduckbot",
    "facebookbot",
    "facebookexternalhit",
    "googlebot",
    "googlebot-image",
    "googlebot-news",
    "googlebot-video",
    "googleother",
    "gptbot",
    "heritrix",
    "ia_archiver",
    "imagesiftbot",
    "mediapartners-google",
    "megaindex.ru",
    "meta-externalagent",
    "meta-externalfetcher",
    "mj12bot",
    "mojeekbot",
    "msnbot",
    "oai-searchbot",
    "omgili",
    "perplexity-user",
    "perplexitybot",
    "petalbot",
    "qwantbot",
    "semrushbot",
    "serpstatbot",
    "seznambot",
    "slurp",
    "sogou",
    "storebot-google",
    "timpibot",
    "turnitinbot",
    "yandexbot",
    "yandeximages",
    "yeti",
    "youbot",
];

/// The length of the longest name.
const LONGEST: usize = 20;

/// Returns whether one of the products of a `User-Agent`, or of the comments in it, is a known crawler.
pub(super) fn is_known(agent: &[u8]) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    agent.split(|&byte| !is_part(byte)).any(is_one)
}

fn is_one(product: &[u8]) -> bool {
    let mut lower = [0; LONGEST];
    let Some(lower) = lower.get_mut(..product.len()) else { return false };
    lower.copy_from_slice(product);
    lower.make_ascii_lowercase();
    KNOWN.binary_search_by(|known| known.as_bytes().cmp(lower)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn crawlers_are_recognised_and_browsers_are_not() {
        assert!(KNOWN.is_sorted() && KNOWN.iter().all(|name| is_known(name.as_bytes())));
        assert_eq!(KNOWN.iter().map(|name| name.len()).max(), Some(LONGEST));
        for agent in [
            "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
            "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
            "facebookexternalhit/1.1 (+http://www.facebook.com/externalhit_uatext.php)",
            "Sogou web spider/4.0(+http://www.sogou.com/docs/help/webmasters.htm#07)",
            "Mozilla/5.0 (compatible; archive.org_bot +http://archive.org/details/archive.org_bot)",
        ] {
            assert!(is_known(agent.as_bytes()), "{agent}");
        }
        for agent in [
            "",
            "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0.0.0 Safari/537.36",
            "curl/8.5.0",
            "our-robot/1.0",
            "NotGooglebot/1.0",
        ] {
            assert!(!is_known(agent.as_bytes()), "{agent}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(agent: Vec<u8>) {
            is_known(&agent);
        }
    }
}

"""Ask a server for translations, whole and as they come: python examples/serving_client.py http://127.0.0.1:5000."""

from __future__ import annotations

import sys

from longstride.client import Client


def main(address: str) -> None:
    """A text, a list of texts, one with a term that has to be called something else, and one token by token."""
    with Client(address) as client:
        print(client.translate("Good morning!", "en", "de"))
        print(client.translate(["The vote will take place tomorrow.", "Thank you."], "en", "de"))
        print(client.translate("The Council has decided.", "en", "de", glossary={"Council": "Kammer"}))
        for event in client.stream("The committee has adopted the report.", decoder="draft-verify"):
            if not event.get("done"):
                print(event["text"], end="|", flush=True)
        print()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:5000")

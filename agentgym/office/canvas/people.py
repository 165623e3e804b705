"""Canvas: users, user profiles and login."""

from __future__ import annotations

from agentgym.office.canvas.records import CanvasPart
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool


class People(CanvasPart):
    """Users."""

    def login_as(self, login_id: str) -> None:
        """Log a user in without a password."""
        user = self._store.value("SELECT id FROM users WHERE login_id = ?", login_id)
        if user is None:
            raise ToolError(f"not found: there is no user with login id {echo(login_id)}")
        self._records.session["user"] = user

    def add_user(
        self,
        name: str,
        login_id: str,
        password: str,
        *,
        admin: bool = False,
    ) -> int:
        """Add a user with an e-mail address as login id; an `admin` has all rights."""
        if self._store.value("SELECT 1 FROM users WHERE login_id = ?", login_id):
            raise ToolError(f"conflict: login id {echo(login_id)} is taken")
        return self._records.add(
            "users",
            name=name,
            sortable_name=_family_name_first(name),
            short_name=name,
            login_id=login_id,
            password=password,
            email=login_id,
            admin=admin,
            account_id=1,
            created_at=self._records.now(),
            updated_at=self._records.now(),
        )

    @tool
    def canvas_health_check(self) -> Row:
        """Check the connection to Canvas and the login."""
        user = None
        if "user" in self._records.session:
            user = show_profile(self._records.me())
        return {"status": "ok", "timestamp": self._records.now(), "user": user}

    @tool
    def canvas_login(self, login_id: str, password: str) -> Row:
        """Log in; a user logged in before is logged out.

        Args:
            login_id: Login id.
            password: Password.
        """
        user = self._store.row("SELECT * FROM users WHERE login_id = ?", login_id)
        # The error does not reveal whether the login id exists.
        if user is None or user["password"] != password:
            raise ToolError("permission denied: the login id or the password is wrong")
        self._records.session["user"] = user["id"]
        self._store.update("users", user["id"], last_login=self._records.tick())
        return self.canvas_get_current_user() | {"message": f"Logged in as {user['name']}"}

    @tool
    def canvas_logout(self) -> Row:
        """Log out."""
        self._records.me()
        del self._records.session["user"]
        return {"logged_in": False, "message": "Logged out"}

    @tool
    def canvas_get_current_user(self) -> Row:
        """Get the user who is logged in."""
        if "user" not in self._records.session:
            return {"logged_in": False, "message": "Nobody is logged in"}
        return {"logged_in": True, **show_user(self._records.me())}

    @tool
    def canvas_list_users(self) -> Row:
        """List the users in your courses (all users for administrators); addresses only between teachers and students."""
        users = [show_user(user, known) for user, known in self._records.acquaintances()]
        return {"users": users, "count": len(users)}

    @tool
    def canvas_get_user_profile(self) -> Row:
        """Get your profile."""
        return show_profile(self._records.me())


def show_user(user: Row, known: bool = True) -> Row:
    """Return a user's entry in user lists; only the entries of `known` users have addresses."""
    addresses = ("login_id", "email") if known else ()
    return {key: user[key] for key in ("id", "name", *addresses)}


def show_profile(user: Row) -> Row:
    """Return a profile without the password."""
    names = ("id", "name", "short_name", "sortable_name", "login_id", "created_at", "updated_at")
    profile = {key: user[key] for key in names}
    profile |= {"primary_email": user["email"], "time_zone": user["time_zone"] or "UTC"}
    for key in ("bio", "title"):
        if user[key]:
            profile[key] = user[key]
    return profile


def _family_name_first(name: str) -> str:
    first, _, last = name.strip().rpartition(" ")
    return f"{last}, {first}" if first else last

"""Canvas: users, user profiles and login."""

from __future__ import annotations

from agentgym.office.canvas.records import CanvasPart
from agentgym.office.store import Row
from agentgym.text.tools import ToolError, echo, tool

# Selects the user, and those who share a course; `known` is 1 if either teaches a shared course.
_ACQUAINTANCES = """
SELECT u.*, u.id = :me OR known AS known FROM users u LEFT JOIN (
  SELECT e.user_id,
    max(e.type IN ('TeacherEnrollment', 'TaEnrollment')
      OR mine.type IN ('TeacherEnrollment', 'TaEnrollment')) AS known
  FROM enrollments mine JOIN enrollments e ON e.course_id = mine.course_id
    AND e.enrollment_state = 'active'
  WHERE mine.user_id = :me AND mine.enrollment_state = 'active' GROUP BY e.user_id
) ON user_id = u.id
WHERE u.id = :me OR known IS NOT NULL ORDER BY u.id
"""


class People(CanvasPart):
    """Users."""

    def login_as(self, login_id: str) -> None:
        """Log a user in without a password."""
        user = self.store.value("SELECT id FROM users WHERE login_id = ?", login_id)
        if user is None:
            raise ToolError(f"not found: there is no user with login id {echo(login_id)}")
        self.session["user"] = user

    def add_user(self, name: str, login_id: str, password: str) -> int:
        """Add a user with an e-mail address as login id, and return the user's id."""
        return self.add(
            "users", name=name, login_id=login_id, password=password, created_at=self.now()
        )

    @tool
    def canvas_health_check(self) -> Row:
        """Check the connection to Canvas and the login."""
        user = None
        if "user" in self.session:
            user = show_profile(self.me())
        return {"status": "ok", "timestamp": self.now(), "user": user}

    @tool
    def canvas_login(self, login_id: str, password: str) -> Row:
        """Log in; a user logged in before is logged out.

        Args:
            login_id: Login id.
            password: Password.
        """
        user = self.store.row("SELECT * FROM users WHERE login_id = ?", login_id)
        # The error does not reveal whether the login id exists.
        if user is None or user["password"] != password:
            raise ToolError("permission denied: the login id or the password is wrong")
        self.session["user"] = user["id"]
        self.store.update("users", user["id"], last_login=self.tick())
        return self.canvas_get_current_user() | {"message": f"Logged in as {user['name']}"}

    @tool
    def canvas_logout(self) -> Row:
        """Log out."""
        self.me()
        del self.session["user"]
        return {"logged_in": False, "message": "Logged out"}

    @tool
    def canvas_get_current_user(self) -> Row:
        """Get the user who is logged in."""
        if "user" not in self.session:
            return {"logged_in": False, "message": "Nobody is logged in"}
        return {"logged_in": True, **show_user(self.me())}

    @tool
    def canvas_list_users(self) -> Row:
        """List the users in your courses (all users for administrators); addresses only between teachers and students."""
        rows = self.store.rows(_ACQUAINTANCES, me=self.me()["id"])
        users = [show_user(row, row["known"]) for row in rows]
        return {"users": users, "count": len(users)}

    @tool
    def canvas_get_user_profile(self) -> Row:
        """Get your profile."""
        return show_profile(self.me())


def show_user(user: Row, known: bool = True) -> Row:
    """Return a user's entry in user lists; only the entries of `known` users have addresses."""
    shown = {"id": user["id"], "name": user["name"]}
    if known:
        shown |= {"login_id": user["login_id"], "email": user["login_id"]}
    return shown


def show_profile(user: Row) -> Row:
    """Return a profile without the password."""
    name = user["name"]
    first, _, last = name.strip().rpartition(" ")
    return {
        "id": user["id"],
        "name": name,
        "short_name": name,
        "sortable_name": f"{last}, {first}" if first else last,
        "login_id": user["login_id"],
        "created_at": user["created_at"],
        "updated_at": user["created_at"],
        "primary_email": user["login_id"],
        "time_zone": "UTC",
    }
